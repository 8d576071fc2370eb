"""Sessions of the gateway without a socket, and requests as real programs write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
from playground import SpySampler, recorder

from hyperrl.agents.recorder import Recorder
from hyperrl.harness.gateway.server import GatewayApp
from hyperrl.harness.gateway.session_table import SessionTable
from hyperrl.harness.gateway.sessions import GatewaySession, GatewaySettings
from hyperrl.trajectory import TurnUse


class Served:
    """One recorder behind the gateway's application.

    Args:
        script: what the policy says.
        values: for the recorder, such as its seats.
    """

    def __init__(self, script: Any, *, settings: GatewaySettings | None = None, **values: Any) -> None:
        config, self.table = settings or GatewaySettings(), SessionTable()
        self.app = GatewayApp(self.table, config)
        self.sampler = SpySampler(script)
        self.recorder: Recorder = recorder(self.sampler, **values)
        self.session = self.open(self.recorder, config)

    def open(self, served: Recorder, config: GatewaySettings) -> GatewaySession:
        session = GatewaySession(
            served, address="http://gateway", settings=config, on_close=self.table.remove
        )
        self.table.add(session)
        return session

    @property
    def paths(self) -> list[int | None]:
        """The parent of each turn."""
        turns = self.recorder.forest.turns
        return [None if turn.parent is None else turn.parent.index for turn in turns]

    @property
    def uses(self) -> list[TurnUse]:
        return [turn.use for turn in self.recorder.forest.turns]

    async def request(self, method: str, url: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request to an URL; a body that is no bytes becomes JSON."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        transport = httpx.ASGITransport(app=self.app)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(method, url, content=content, headers=named)

    async def post(self, route: str, body: Any, **headers: str) -> httpx.Response:
        """Send a body to a route of the session, with its key."""
        headers.setdefault("authorization", f"Bearer {self.session.api_key}")
        return await self.request("POST", f"{self.session.base_url}/{route}", body, **headers)

    async def ask(self, route: str, body: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        """Send a body and return the answer's, which must be no error."""
        response = await self.post(route, body, **headers)
        assert response.status_code == 200, response.text
        return response.json()  # type: ignore[no-any-return]
