"""What an episode knows of the endpoint that serves its policies: the gateway implements it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hyperrl.agents.recorder import Recorder

__all__ = ["Application", "Host", "Session"]

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


class Session(Protocol):
    """The policies of one episode, served over HTTP."""

    @property
    def base_url(self) -> str:
        """Where a client is pointed at."""
        ...

    @property
    def api_key(self) -> str:
        """The secret that a client has to show."""
        ...

    @property
    def error(self) -> BaseException | None:
        """What kept a policy from answering, unless it answered later; ``None`` if only a limit did."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Counts of the requests, by kind."""
        ...

    def mount(self, route: str, application: Application) -> str:
        """Serve an application at a route of the session, to whoever shows the secret; return its URL."""
        ...

    async def aclose(self) -> None:
        """Refuse every later request, cancel those in flight, and settle what was never delivered."""
        ...


class Host(Protocol):
    """Opens sessions. It is bound to the running loop from the first session on."""

    def open(self, recorder: Recorder) -> Session:
        """Serve the policies of a recorder."""
        ...
