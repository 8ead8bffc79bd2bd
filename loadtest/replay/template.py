"""The quick way through a stream: servers repeat themselves, so only what differs is looked at.

When a read is exactly one HTTP chunk holding exactly one event that equals the stream's last one but for the text
of its token, it is a token event and says nothing else. Everything that is not plainly so goes the slow way.
"""

from __future__ import annotations

import re

_CONTENT_KEYS = (b'"content":"', b'"content": "', b'"text":"', b'"text": "')
_UNFINISHED = (b'"finish_reason":null', b'"finish_reason": null')
_SAYS_MORE = re.compile(
    rb'"reasoning|"think|"thought|"tool_calls": ?\[\{|"function_call": ?\{|"completion_tokens"'
    rb'|"token_ids": ?\[|"logprobs": ?\{'
).search
# JSON string content without lone surrogates, which a decoder would have to judge.
_JSON_TEXT = re.compile(rb'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})+').fullmatch
_HEAD_LIMIT = 8
_LENGTH_LIMIT = 64 * 1024
_KNOWN_TEXTS_LIMIT = 100_000

KNOWN_TEXTS: set[bytes] = set()  # texts found to be plain: the tokens of a vocabulary recur


class TokenTemplate:
    """What stands before and after the text in a stream's plain token events; falsy until learnt."""

    __slots__ = ("_events", "_format", "_heads", "_overhead", "_prefix", "_suffix", "_tail")

    def __init__(self) -> None:
        self._prefix = self._suffix = b""
        self._tail = self._events = self._overhead = 0
        self._format = b""
        self._heads: dict[int, bytes] = {}  # total length of a read -> its size line and prefix

    def __bool__(self) -> bool:
        return bool(self._prefix)

    def known(self) -> tuple[dict[int, bytes], bytes, int]:
        """Heads by length of the read, the suffix, and where the text ends, counted from the end of the read."""
        return self._heads, self._suffix, -self._tail

    def matches(self, read: bytes) -> bool:
        """True when `read` is one whole chunk with one plain token event.

        Only valid while framing and event parser both stand at a boundary.
        """
        head = self._heads.get(len(read)) or self._head(len(read))
        if not read.startswith(head) or not read.endswith(self._suffix):
            return False
        text = read[len(head) : -self._tail]
        return text in KNOWN_TEXTS or _is_plain(text)

    def overhead(self, events: int) -> int:
        """Of `events` reads that matched, in all, the bytes that were not their texts; a byte each may be missing."""
        if not self._prefix:
            return 0
        fixed = len(self._prefix) + self._tail
        return self._overhead + (events - self._events) * (fixed + len(self._format % fixed) + 2)

    def learn(self, read: bytes, events: int) -> None:
        """Take `read`, known to be one chunk with one token event, as the pattern, if it is a plain one.

        `events` is how many events have matched so far.
        """
        if self._prefix and self._prefix in read:
            return  # the pattern stands; only this text was an unusual one
        line_end = read.find(b"\r\n", 1, _HEAD_LIMIT)
        body = read[line_end + 2 : -2]
        if line_end < 0 or not body.startswith(b"data:") or not body.endswith(b"\n\n") or b"\r" in body:
            return
        if body.count(b"\n") != 2 or not any(key in body for key in _UNFINISHED) or _SAYS_MORE(body):
            return
        keys = [key for key in _CONTENT_KEYS if key in body]
        if len(keys) != 1 or body.count(keys[0]) != 1:
            return
        start = body.find(keys[0]) + len(keys[0])
        end = body.find(b'"', start)
        formats = [form for form in (b"%x", b"%X") if form % len(body) == read[:line_end]]
        if formats and _is_plain(body[start:end]):
            self._overhead, self._events = self.overhead(events), events
            self._prefix, self._suffix = body[:start], body[end:] + b"\r\n"
            self._tail, self._format = len(self._suffix), formats[0]
            self._heads.clear()

    def _head(self, length: int) -> bytes:
        """The only size line that fits a read of `length` bytes, and the prefix; impossible bytes when none does."""
        head = b"\0"
        for digits in range(1, _HEAD_LIMIT):
            size = self._format % max(length - digits - 4, 0)
            if len(size) == digits:
                head = size + b"\r\n" + self._prefix
        if len(head) + self._tail >= length:
            head = b"\0"
        if length < _LENGTH_LIMIT:
            self._heads[length] = head
        return head


def _is_plain(text: bytes) -> bool:
    """JSON string content that decodes to at least one character, by rules simple enough to be sure."""
    if _JSON_TEXT(text) is None:
        return False
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    if len(KNOWN_TEXTS) < _KNOWN_TEXTS_LIMIT and len(text) <= 64:
        KNOWN_TEXTS.add(text)
    return True
