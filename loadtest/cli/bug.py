"""An error that nobody foresaw: its traceback goes where it can be found, and one sentence says where."""

from __future__ import annotations

import os
import tempfile
import traceback

from loadtest import secrets


def told(error: BaseException) -> str:
    """The sentence; the traceback is in the file that it names, or in it where no file can be written."""
    text = secrets.mask("".join(traceback.format_exception(error)))
    if os.environ.get("GOODPUT_DEBUG"):
        return f"a bug in this program\n{text}"
    try:
        descriptor, path = tempfile.mkstemp(prefix="goodput-", suffix=".traceback.txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:  # no folder for temporary files
        return f"a bug in this program\n{text}"
    return f"a bug in this program: {type(error).__name__}: {error}; its traceback is in {path}"
