"""Write docs/schema from the structs themselves; `--check` only says whether the files are current."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from loadtest.documents import DOCUMENTS, schema_of

FOLDER = Path(__file__).parent.parent / "docs" / "schema"


def render() -> dict[str, str]:
    """The text of every file by its name."""
    return {f"{name}.json": json.dumps(schema_of(name), indent=1, sort_keys=True) + "\n" for name in DOCUMENTS}


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` name those that are not as the structs say; 0 when all are current."""
    made = render()
    stored = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    if arguments == ["--check"]:
        stale = sorted(name for name in {*made, *stored} if made.get(name) != stored.get(name))
        sys.stdout.writelines(f"docs/schema/{name} is not current: run scripts/docs\n" for name in stale)
        return int(bool(stale))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stored.keys() - made.keys():
        (FOLDER / name).unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
