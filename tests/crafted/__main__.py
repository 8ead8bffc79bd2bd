"""`python -m tests.crafted FOLDER MIB FORMAT`: reports every crafted run within so much memory (0: any).

A line of JSON for each failure, and a last one with how many were read and how many refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import shutil
import sys
import traceback
import warnings
from pathlib import Path

from loadtest.cli.main import run
from metrics import prediction, probes, rundir
from metrics.errors import MetricsError
from tests.crafted.base import copy_of, whole_run
from tests.crafted.cases import cases

EXPECTED = (0, 2)


def main(home: Path, mib: int, form: str) -> None:
    """Every case through the loader and `goodput report`."""
    whole = whole_run(home / "run")
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["report", "--format", form, str(whole)]) == 0  # and everything is imported
    if mib:
        resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
    warnings.simplefilter("error")
    count = {"read": 0, "refused": 0}
    for number, (name, craft) in enumerate(cases().items()):
        folder = copy_of(whole, home / str(number))
        craft(folder)
        wrong = _load(folder, count) or _report(folder, form)
        if wrong:
            print(json.dumps({"case": name, "wrong": wrong}), flush=True)
        shutil.rmtree(folder.parent)
    print(json.dumps(count))


def _load(folder: Path, count: dict[str, int]) -> str:
    try:
        rundir.load(folder)
        probes.load(folder)
        prediction.load(folder, None)
        count["read"] += 1
    except MetricsError as error:
        count["refused"] += 1
        if not error.message or "\n" in error.message or len(error.message) > 2000:
            return f"no sentence: {error.message[:300]!r}"
    except BaseException:
        return traceback.format_exc()[-900:]
    return ""


def _report(folder: Path, form: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["report", "--format", form, str(folder)])
    return "" if code in EXPECTED else f"exit {code}: {err.getvalue()[-1500:]}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
