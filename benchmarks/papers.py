"""What the simulator says of published figures, DistServe's and Splitwise's; misses are printed as misses.

distserve.py (real systems and their simulator), splitwise.py (machines, phases, KV transfer, batching) and clusters.py
(designs of equal power and cost) hold what is compared.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import clusters, distserve, splitwise
from benchmarks.targets import Target, conclude

TRACES = Path(__file__).parents[2] / "shared" / "traces"
PARTS = ("distserve", "splitwise", "clusters")


def main() -> int:
    """Print the comparisons asked for and judge them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts; the clusters take minutes")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder with the Azure traces")
    parser.add_argument("--distserve", default="", help="a checkout of LLMServe/DistServe")
    parser.add_argument("--python", default="", help="interpreter with its requirements")
    options = parser.parse_args()
    parts = options.only or PARTS
    judged: list[Target] = []
    if "distserve" in parts:
        judged += distserve.targets(options.distserve, options.python)
    if "splitwise" in parts:
        judged += splitwise.targets(options.traces)
    if "clusters" in parts:
        judged += clusters.targets(options.traces)
    return conclude("papers", judged)


if __name__ == "__main__":
    sys.exit(main())
