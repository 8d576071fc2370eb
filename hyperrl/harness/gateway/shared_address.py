"""One URL and secret for many episodes: for a program that plays them in one process.

Such a program is told its address once, when it starts, so the address cannot name the episode. Its requests
say in a header which of its threads they come from, and every episode says which thread is its own.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping

from hyperrl.errors import ConfigError
from hyperrl.harness.gateway.exchange import RefusedError
from hyperrl.harness.gateway.purposes import thread_of
from hyperrl.harness.gateway.sessions import GatewaySession

__all__ = ["SharedAddress"]

PARENT = re.compile(rb'parent agent id is \\?"([^"\\]{1,200})')
"""How a sub-agent's first message names its parent (DeepSeek Harness), within JSON.

It stands behind what the parent's policy wrote for the child, so where a policy writes such a line itself,
the last one counts: no policy can put a child into another episode.
"""


class SharedAddress:
    """An address that serves the sessions of many episodes, told apart by thread.

    Attributes:
        name: its part of the URL.
        base_url: where the program is pointed at.
        api_key: the secret that it has to show.
    """

    def __init__(self, address: str, on_close: Callable[[SharedAddress], None]) -> None:
        self.name = secrets.token_hex(8)
        self.api_key = f"sk-hyperrl-{secrets.token_urlsafe(24)}"
        self.base_url = f"{address}/s/{self.name}/v1"
        self._on_close = on_close
        self._bound: dict[str, GatewaySession] = {}
        self._children: dict[str, GatewaySession] = {}

    def bind(self, thread: str, session: GatewaySession) -> None:
        """Let the requests of a thread, and of the children that it starts, reach a session.

        Raises:
            ConfigError: the thread is bound to another session that is still open.
        """
        known = self._bound.get(thread)
        if known is not None and known is not session and not known.closed:
            raise ConfigError(
                f"thread {thread!r} plays another episode; give every episode a thread of its own"
            )
        self._forget_closed()
        self._bound[thread] = session

    def session_for(self, headers: Mapping[str, str], body: bytes) -> GatewaySession:
        """Return the session that a request belongs to.

        Args:
            headers: those of the request, names in lower case.
            body: its body; a child's first one names its parent.

        Raises:
            RefusedError: it says no thread, or one that belongs to no episode.
        """
        thread = thread_of(headers)
        session = self._bound.get(thread) or self._children.get(thread)
        if session is None and thread and (named := PARENT.findall(body)):
            parent = named[-1].decode("utf-8", "replace")
            session = self._bound.get(parent) or self._children.get(parent)
            if session is not None:
                self._children[thread] = session
        if session is None:
            text = f"no episode plays thread {thread!r:.80}" if thread else "no header says which thread asks"
            raise RefusedError(400, "unknown_thread", text)
        return session

    def close(self) -> None:
        """Refuse every later request. The sessions stay open."""
        self._bound.clear()
        self._children.clear()
        self._on_close(self)

    def _forget_closed(self) -> None:
        """Keep late requests of the last episodes apart from unknown ones, but not for ever."""
        for threads in (self._bound, self._children):
            for thread in [thread for thread, session in threads.items() if session.closed][:-1000]:
                del threads[thread]
