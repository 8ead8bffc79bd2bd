"""Send a schedule to a server on time, and write down what comes back."""

from __future__ import annotations

PROJECT = "slo-goodput"  # start-up checks it: another distribution may ship a package of the same name
__version__ = "0.1.0"
