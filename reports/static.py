"""Charts without a browser: the Vega bundle that goes into a page, and a specification drawn as SVG."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

VEGA_LITE = "6.4"
# The page names each chart to assistive technology itself; Vega's name for every mark would only be weight.
_ARIA = re.compile(r' (?:role|aria-[a-z]+)="[^"]*"')
_ID = re.compile(r'(\bid="|url\(#)([A-Za-z][\w-]*)')


@lru_cache(maxsize=1)
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, safe inside a script element."""
    import vl_convert

    # Without a snippet it is the bundle that sets window.vegaEmbed; the stub wrongly asks for one.
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def svg(spec: dict[str, Any], *, width: int, ids: str) -> str:
    """A specification as an SVG that scales with its container; `ids` makes its ids unique in a page."""
    import vl_convert

    still = {**spec, "width": width, "layer": [layer for layer in spec["layer"] if not _for_pointing(layer)]}
    text = _ARIA.sub("", str(vl_convert.vegalite_to_svg(still, vl_version=VEGA_LITE)))
    # Vega numbers its clip paths on and on; numbered anew, the same chart is the same text.
    numbers: dict[str, int] = {}
    text = _ID.sub(lambda found: f"{found[1]}{ids}-{numbers.setdefault(found[2], len(numbers))}", text)
    return re.sub(r' width="[\d.]+" height="[\d.]+" viewBox', " viewBox", text, count=1)


def _for_pointing(layer: dict[str, Any]) -> bool:
    """Whether a layer is invisible: there only to catch the pointer."""
    mark = layer.get("mark")
    return isinstance(mark, dict) and mark.get("opacity") == 0
