"""Opens connections: to the target's next address, or to where a redirect led."""

from __future__ import annotations

from loadtest.replay.connection import Address, Connection, Owner
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.limits import check_spare, raise_fd_limit
from loadtest.replay.reactor import Reactor
from loadtest.replay.tls import TlsConnection


class Dialer:
    """Knows the target's addresses, whether it speaks TLS, and how many files may be open."""

    def __init__(self, endpoint: Endpoint, reactor: Reactor, owner: Owner) -> None:
        self._endpoint, self._reactor, self._owner = endpoint, reactor, owner
        self._addresses = (endpoint if endpoint.addresses else endpoint.resolve()).address_list()
        self._file_limit = raise_fd_limit()

    def target(self) -> Connection:
        """A new connection to the target, still connecting; OSError when the system gives none."""
        return self._connect(self._endpoint, self._addresses[0])

    def hop(self, endpoint: Endpoint) -> Connection:
        """The same, to another origin."""
        return self._connect(endpoint, endpoint.address_list()[0])

    def at_home(self, hop: Endpoint | None) -> bool:
        """True when `hop` is the target's own origin, whose connections are kept."""
        return hop is None or hop.origin == self._endpoint.origin

    def try_next_address(self) -> None:
        """The last connection did not come up: another of the target's addresses may be reachable."""
        self._addresses.append(self._addresses.pop(0))

    def _connect(self, endpoint: Endpoint, address: Address) -> Connection:
        if endpoint.tls:
            made: Connection = TlsConnection(address, self._reactor, self._owner, endpoint)
        else:
            made = Connection(address, self._reactor, self._owner)
        try:
            check_spare(made.sock.fileno(), self._file_limit)
        except OSError:
            made.close()
            raise
        return made
