"""Locust around the sender: the only package that may import locust."""

from __future__ import annotations

import os

# Importing locust patches the standard library's sockets unless told not to. The sender needs no patched
# socket, and the process it runs in also supervises servers and writes files. Under `locust -f` Locust has
# been imported, and has patched, before this line; that works too.
os.environ.setdefault("LOCUST_SKIP_MONKEY_PATCH", "1")
