"""Charts without a browser: the Vega bundle that goes into a page, and a specification drawn as SVG."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from metrics.cachefolder import cache_folder
from reports.escape import printable_lines

VEGA_LITE = "6.4"
_WHOLE = "\n/* whole */"  # a file that was cut off lacks it
# The page names each chart to assistive technology itself; Vega's name for every mark would only be weight.
_ARIA = re.compile(r' (?:role|aria-[a-z]+)="[^"]*"')
# What a drawing cannot hold, as its bytes in JSON: controls, line and paragraph separators, marks of direction.
_CONTROL_IN_JSON = re.compile(
    rb"\\u00[01]|\\[bf]|\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
    rb"|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]"
)
_ID = re.compile(r'(\bid="|url\(#)([A-Za-z][\w-]*)')


@lru_cache(maxsize=1)
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, safe inside a script element.

    Making it takes seconds and 130 MB, so it is kept in the user's cache folder for each version it comes from.
    """
    folder = cache_folder()
    if folder is None:
        return _make_bundle() + _WHOLE
    kept = folder / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        text = kept.read_text(encoding="utf-8")
        if text.endswith(_WHOLE):
            return text
    text = _make_bundle() + _WHOLE
    with suppress(OSError):  # a cache that cannot be written is no reason to fail
        _keep(kept, text)
    return text


def _make_bundle() -> str:
    import vl_convert

    # Without a snippet it is the bundle that sets window.vegaEmbed; the stub wrongly asks for one.
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _keep(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all, whoever else is writing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).replace(path)


def svg(spec: dict[str, Any], *, width: int, ids: str) -> str:
    """A specification as an SVG that scales with its container; `ids` makes its ids unique in a page."""
    import vl_convert

    layers = [layer for layer in spec["layer"] if not _for_pointing(layer)]
    still = drawable({**spec, "width": width, "layer": layers})
    text = _ARIA.sub("", str(vl_convert.vegalite_to_svg(still, vl_version=VEGA_LITE)))
    # Vega numbers its clip paths on and on; numbered anew, the same chart is the same text.
    numbers: dict[str, int] = {}
    text = _ID.sub(lambda found: f"{found[1]}{ids}-{numbers.setdefault(found[2], len(numbers))}", text)
    return re.sub(r' width="[\d.]+" height="[\d.]+" viewBox', " viewBox", text, count=1)


def drawable(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification without what no SVG or expression can hold: at some labels the renderer ends the process."""
    found: dict[str, Any] = _without_controls(spec) if _CONTROL_IN_JSON.search(msgspec.json.encode(spec)) else spec
    return found


def _without_controls(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _without_controls(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_without_controls(value) for value in part]
    return printable_lines(part) if isinstance(part, str) else part


def _for_pointing(layer: dict[str, Any]) -> bool:
    """Whether a layer is invisible: there only to catch the pointer."""
    mark = layer.get("mark")
    return isinstance(mark, dict) and mark.get("opacity") == 0
