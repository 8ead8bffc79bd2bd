"""Where a 307 or 308 leads: same method, same body, and no secret to anybody but the target that was named.

Other redirects would turn the POST into a GET, so they are answers like any other.
"""

from __future__ import annotations

from urllib.parse import urljoin

import msgspec

from loadtest.replay.bodies import Request, request_head
from loadtest.replay.endpoint import Endpoint
from loadtest.weburl import split_url

FOLLOWED = (307, 308)
MAX_REDIRECTS = 5


def next_hop(current: Endpoint, status: int, location: str, redirects: int) -> Endpoint | None:
    """The endpoint that a redirect of `current` names; None when it is not to be followed.

    Another origin gets neither the key nor the user's own headers. Raises TargetError when its host is not found.
    """
    if status not in FOLLOWED or not location or redirects >= MAX_REDIRECTS:
        return None
    try:
        parts = split_url(urljoin(current.url, location))
    except ValueError:
        return None
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    hop = msgspec.structs.replace(current, scheme=parts.scheme, host=host, port=port, path=path)
    if hop.origin == current.origin:
        return hop
    return msgspec.structs.replace(hop, headers=[], api_key_env="", api_key_file="", addresses=[]).resolve()


def moved(request: Request, hop: Endpoint) -> Request:
    """The same request, addressed to `hop`."""
    first, *rest = (request,) if isinstance(request, bytes) else request
    body = first.partition(b"\r\n\r\n")[2]
    size = len(body) + sum(map(len, rest))
    begin = b"%sContent-Length: %d\r\n\r\n%s" % (request_head(hop, "POST", hop.request_path), size, body)
    return (begin, *rest) if rest else begin


def refusal(location: str) -> str:
    """What to say of a redirect that was not followed."""
    return f"the server redirects to {location[:200]}, and that was not followed: name it as the target"
