"""TLS on top of a stamped connection: the socket's reads keep their kernel stamps, a MemoryBIO decrypts them.

A read's plaintext gets the stamp of the segment that completed the record.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

from loadtest import clock
from loadtest.errors import TargetError, UsageError
from loadtest.replay.connection import (
    LAST_CHUNK,
    MAX_READS_KEPT,
    READ_BYTES,
    READ_ROOM,
    READ_ROOMS,
    Address,
    Connection,
    Owner,
)
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.reactor import Reactor
from loadtest.replay.stamps import ANCILLARY_BYTES, NO_STAMP

MAX_RECORD_BYTES = 16 * 1024


@lru_cache(maxsize=4)
def context(ca_file: str, verify: bool) -> ssl.SSLContext:
    """The TLS settings of an endpoint; raises UsageError for a CA file that cannot be read."""
    try:
        made = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the CA file {ca_file} cannot be used: {error}") from None
    made.set_alpn_protocols(["http/1.1"])
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def wrap_blocking(endpoint: Endpoint, sock: socket.socket) -> AbstractContextManager[socket.socket]:
    """The socket itself, or a TLS socket after its handshake; raises TargetError when the certificate is refused."""
    if not endpoint.tls:
        return nullcontext(sock)
    try:
        return context(endpoint.ca_file, endpoint.verify).wrap_socket(sock, server_hostname=endpoint.host)
    except ssl.SSLCertVerificationError as error:
        raise TargetError(
            f"the certificate of {endpoint.origin} is not trusted: {error.verify_message}",
            hint="give its authority with --ca-file FILE, or switch the check off with --no-verify",
            code="certificate",
        ) from None
    except ssl.SSLError as error:
        raise TargetError(
            f"{endpoint.origin} does not speak TLS: {error.reason or error}", hint="try http://", code="tls"
        ) from None


class TlsConnection(Connection):
    """A connection whose bytes pass through TLS; everything else is inherited."""

    __slots__ = ("_incoming", "_outgoing", "_shaken", "_tls")

    def __init__(self, address: Address, reactor: Reactor, owner: Owner, endpoint: Endpoint) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context(endpoint.ca_file, endpoint.verify).wrap_bio(
            self._incoming, self._outgoing, server_hostname=endpoint.host
        )
        self._shaken = False
        super().__init__(address, reactor, owner)

    def send(self, data: bytes) -> int:
        self._tls.write(data)
        return super().send(self._outgoing.read())

    def _established(self) -> None:
        """TCP is up: shake hands before telling the owner."""
        self.open = False
        self._shake()

    def _shake(self) -> bool:
        """Go on with the handshake; True when it is through."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._owner.lost(self, OSError(f"TLS: {error.reason or error}"))
            return False
        self._flush()
        self._shaken = self.open = True
        super()._established()
        return True

    def _flush(self) -> None:
        if self._outgoing.pending:
            super().send(self._outgoing.read())

    def _readable(self) -> None:
        try:
            length, ancillary, _, _ = self._recvmsg_into(READ_ROOMS, ANCILLARY_BYTES)
        except OSError as error:
            self._not_received(error)
            return
        now = clock.monotonic_ns()
        if not length:
            self._owner.lost(self, None)
            return
        self._incoming.write(READ_ROOM[:length])
        if length == READ_BYTES:
            self._reactor.soon(self._read_on)
        if not self._shaken and not self._shake():
            return
        plain = self._decrypt()
        if self._outgoing.pending:  # key updates and the like
            self._flush()
        if plain:
            self.reads.append((now, ancillary[0][2] if ancillary else NO_STAMP, plain))
            if self.decode_soon or plain[-5:] == LAST_CHUNK or len(self.reads) >= MAX_READS_KEPT:
                self._owner.received(self)

    def _decrypt(self) -> bytes:
        pieces, tls, incoming = [], self._tls, self._incoming
        try:
            while piece := tls.read(MAX_RECORD_BYTES):
                pieces.append(piece)
                # Asking an empty buffer raises, which costs as much as a record does.
                if not incoming.pending and not tls.pending():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            broken = OSError(f"TLS: {error}")
            self._reactor.soon(lambda: self._owner.lost(self, broken))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
