"""Which session a request belongs to, and whether it may use it."""

from __future__ import annotations

import hmac
from collections import OrderedDict

from hyperrl.harness.gateway.exchange import RefusedError
from hyperrl.harness.gateway.sessions import GatewaySession
from hyperrl.harness.gateway.shared_address import SharedAddress

__all__ = ["SessionTable"]

REMEMBERED = 10_000
"""How many ended sessions are told from unknown ones."""


class SessionTable:
    """The open sessions of a gateway, and the names of those that have ended.

    Attributes:
        sessions: those that are open, by name.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, GatewaySession] = {}
        self._by_key: dict[str, GatewaySession | SharedAddress] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()

    def add(self, session: GatewaySession) -> None:
        """Let requests find a session."""
        self.sessions[session.name] = session
        self._by_key[session.api_key] = session

    def remove(self, session: GatewaySession) -> None:
        """Remember a session as ended."""
        del self.sessions[session.name], self._by_key[session.api_key]
        self._ended[session.api_key] = session.name
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def add_shared(self, shared: SharedAddress) -> None:
        """Let requests find an address of many sessions."""
        self._by_key[shared.api_key] = shared

    def remove_shared(self, shared: SharedAddress) -> None:
        """Forget an address of many sessions."""
        self._by_key.pop(shared.api_key, None)

    def find(self, name: str, key: str) -> GatewaySession | SharedAddress:
        """Return the session, or the address of many, that a request may use.

        Args:
            name: the session's part of the URL, or its secret; empty if the URL has none.
            key: the secret that came in a header; empty if there was none.

        Raises:
            RefusedError: there is no such session, the secret is not its own, or the session has ended.
        """
        for secret in (name, key):
            session = self._by_key.get(secret)
            if session is not None and _fits(name, session.name, secret):
                return session
            ended = self._ended.get(secret)
            if ended is not None and _fits(name, ended, secret):
                raise RefusedError(400, "episode_over", "the episode is over; a late request changes nothing")
        raise RefusedError(401, "invalid_api_key", "no open session has this URL and key")


def _fits(given: str, name: str, secret: str) -> bool:
    """Whether the URL names no other session than the one that the secret opens."""
    return given in ("", secret) or hmac.compare_digest(given.encode("utf-8", "replace"), name.encode())
