"""Opens connections: to the target's addresses, or to where a redirect led."""

from __future__ import annotations

from loadtest.replay.connection import Address, Connection, Owner
from loadtest.replay.endpoint import Endpoint, host_and_port
from loadtest.replay.limits import check_spare, raise_fd_limit
from loadtest.replay.reactor import Reactor
from loadtest.replay.tls import TlsConnection


class Dialer:
    """Knows the target's addresses, whether it speaks TLS, and how many files may be open."""

    def __init__(self, endpoint: Endpoint, reactor: Reactor, owner: Owner) -> None:
        self._endpoint, self._reactor, self._owner = endpoint, reactor, owner
        self._addresses = (endpoint if endpoint.addresses else endpoint.resolve()).address_list()
        # One part, and other ways to it; or several parts, each with its share of the requests.
        self.places = max(endpoint.parts, 1)
        self._file_limit = raise_fd_limit()

    def target(self, place: int) -> Connection:
        """A new connection to one of the target's parts, still connecting; OSError when the system gives none."""
        return self._connect(self._endpoint, self._addresses[place])

    def place_names(self) -> list[str]:
        """The address of each part, as it is printed."""
        return [host_and_port(*address.sockaddr[:2]) for address in self._addresses[: self.places]]

    def hop(self, endpoint: Endpoint) -> Connection:
        """The same, to another origin."""
        return self._connect(endpoint, endpoint.address_list()[0])

    def at_home(self, hop: Endpoint | None) -> bool:
        """True when `hop` is the target's own origin, whose connections are kept."""
        return hop is None or hop.origin == self._endpoint.origin

    def try_next_address(self) -> None:
        """The last connection did not come up: another of the target's addresses may be reachable.

        Where each is a part of its own, its requests fail: they were to show what that part does.
        """
        if self.places == 1:
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
