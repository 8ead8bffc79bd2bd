"""A URL of a server as people write it: taken apart at one place, so that no later step meets one that is none."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def split_url(text: str, schemes: tuple[str, ...] = ("http", "https")) -> SplitResult:
    """Its parts, with a host that can be looked up and a port that can be dialled; ValueError says what is wrong."""
    if any(c.isspace() or not c.isprintable() for c in text):
        raise ValueError("has a space or a control character in it")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("has brackets that hold no IPv6 address") from None
    if parts.scheme not in schemes:
        raise ValueError(f"is not an {' or '.join(schemes)} URL")
    if not parts.hostname:
        raise ValueError("names no host")
    try:
        usable = parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("has no valid port")
    try:
        parts.hostname.partition("%")[0].encode("idna")
    except UnicodeError:
        raise ValueError("has a host name with an empty, too long or unknown part") from None
    return parts
