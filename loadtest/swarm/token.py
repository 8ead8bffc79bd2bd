"""The secret that a master and its workers share, and the keys that both make from it.

The token itself never travels. Each side derives the same two key pairs of ZeroMQ's CURVE from it; who does not hold
it knows neither the master's public key, which the first message must be sealed for, nor the secret one, which alone
opens it. So both sides prove the token to each other before either says anything, and all they say is encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from zmq import curve_public
from zmq.utils import z85

from loadtest.errors import UsageError

LEAST_CHARACTERS = 16
LARGEST_FILE_BYTES = 4096
VARIABLE = "GOODPUT_WORKER_TOKEN"  # from a run to the worker processes it starts itself


class KeyPair(NamedTuple):
    """A CURVE key pair in ZeroMQ's text form."""

    public: bytes
    secret: bytes


class Token:
    """Prints as stars; `master` and `worker` are the key pairs of the two sides."""

    def __init__(self, value: str) -> None:
        self.value = value
        self.master, self.worker = self._keys("master"), self._keys("worker")

    def __repr__(self) -> str:
        return "Token(***)"

    @staticmethod
    def fresh() -> Token:
        """One that nobody can guess."""
        return Token(secrets.token_urlsafe(32))

    @staticmethod
    def read(path: Path) -> Token:
        """The one line of a file; UsageError when there is none, or one that could be guessed."""
        try:
            with path.open("rb") as file:
                text = file.read(LARGEST_FILE_BYTES + 1).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise _unusable(path, f"cannot be read: {reason}") from None
        if not LEAST_CHARACTERS <= len(text) <= LARGEST_FILE_BYTES or len(text.split()) != 1:
            raise _unusable(path, f"must hold one word of at least {LEAST_CHARACTERS} characters")
        return Token(text)

    @staticmethod
    def read_or_make(path: Path) -> Token:
        """As `read`; where there is no file a fresh token is put into one that only this user can read."""
        if path.exists():
            return Token.read(path)
        made, whole = Token.fresh(), path.with_name(f"{path.name}.{os.getpid()}")
        try:
            descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(made.value + "\n")
            whole.rename(path)  # a worker that waits for the file never reads half of it
        except OSError as error:
            raise _unusable(path, f"cannot be made: {error.strerror}") from None
        return made

    def _keys(self, side: str) -> KeyPair:
        secret = z85.encode(hmac.digest(self.value.encode(), f"goodput/1 {side}".encode(), hashlib.sha256))
        return KeyPair(curve_public(secret), secret)


def is_loopback(host: str) -> bool:
    """True for an address that only this machine reaches."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"the token file {path} {why}",
        hint="let goodput run --master --token-file FILE make one, and copy it to each worker",
        code="token_file",
    )
