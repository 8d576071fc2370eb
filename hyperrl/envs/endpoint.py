"""A client of OpenAI-compatible endpoints, for judges, reward models and remote policies.

One :class:`Endpoint` may be used from several event loops at once: each gets its own connections. What
may pass on its own (no connection, a broken one, no answer in time, 429, 5xx) is tried again after a
pause; anything else is an :class:`~hyperrl.errors.EndpointError` at once.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from hyperrl.errors import ConfigError, EndpointError
from hyperrl.sampling import Message, ToolSchema

if TYPE_CHECKING:
    import httpx

__all__ = ["ChatAnswer", "Endpoint", "describe_wait"]

LONGEST_WAIT_S = 60.0
"""Longest pause before another try. A server that asks for a longer one is not asked again."""

_EXCERPT = 300
_RETRIED = frozenset({408, 409, 425, 429, *range(500, 600)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """What a chat endpoint answered.

    Attributes:
        message: the assistant's message as it came: ``role``, ``content``, ``tool_calls``, ...
        finish_reason: why it stopped; empty where the endpoint does not say.
        usage: token counts as reported; empty where the endpoint does not say.
    """

    message: Message
    finish_reason: str
    usage: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The message's text; empty where it has none."""
        content = self.message.get("content")
        return content if isinstance(content, str) else ""


@dataclass(frozen=True, slots=True)
class _Connections:
    """What belongs to one event loop."""

    client: httpx.AsyncClient
    places: asyncio.Semaphore


class Endpoint:
    """Posts JSON to an endpoint, with retries, limits and errors that say what happened.

    Copies and pickles carry the settings only. Use ``aclose()`` or ``async with`` to close the
    connections of the running loop; those of a loop that is gone are forgotten.

    Args:
        base_url: where the API begins, such as ``http://127.0.0.1:8000/v1``.
        api_key: name of the environment variable that holds the key, read when it is first needed;
            ``None`` sends none. Never the key itself.
        timeout_s: seconds that one try may take.
        retries: tries after the first.
        max_concurrent: most requests in flight at the same time, in each event loop.
        backoff_s: pause before the first retry; it doubles with each, up to ``LONGEST_WAIT_S``, and
            a random part of up to half is taken off. ``Retry-After`` is waited for where it is longer.

    Raises:
        ConfigError: a setting is not acceptable.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 4,
        max_concurrent: int = 32,
        backoff_s: float = 0.5,
    ) -> None:
        _check_url(base_url)
        if not (timeout_s > 0 and retries >= 0 and max_concurrent > 0 and backoff_s >= 0):
            raise ConfigError(
                f"endpoint {base_url}: timeout_s={timeout_s} and max_concurrent={max_concurrent} must be"
                f" above 0, retries={retries} and backoff_s={backoff_s} at least 0"
            )
        self.base_url = base_url.rstrip("/")
        self.api_key = api_key
        self.timeout_s = timeout_s
        self.retries = retries
        self.max_concurrent = max_concurrent
        self.backoff_s = backoff_s
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("api_key", "timeout_s", "retries", "max_concurrent", "backoff_s")
        settings = {name: getattr(self, name) for name in names}
        return functools.partial(type(self), **settings), (self.base_url,)

    def __repr__(self) -> str:
        return f"<Endpoint {self.base_url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of the running loop. A later request opens new ones."""
        connections = self._connections.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.client.aclose()

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post ``body`` as JSON below the base URL and return the JSON object that comes back.

        At most ``retries + 1`` tries of ``timeout_s`` each, and pauses of at most ``LONGEST_WAIT_S``.

        Raises:
            ConfigError: the variable that should hold the key is not set.
            EndpointError: the last try failed, or another one could not help.
        """
        url = f"{self.base_url}/{path.lstrip('/')}"
        content = json.dumps(body, ensure_ascii=True).encode()
        headers = {"content-type": "application/json", **self._authorization()}
        connections = self._connect()
        attempt = 0
        while True:
            try:
                async with connections.places:
                    return await self._try(connections.client, url, content, headers)
            except EndpointError as error:
                if attempt == self.retries or not _passing(error):
                    raise
                # Slept here, so that who ends the wait can read in its context what it was for.
                await asyncio.sleep(self._pause_s(attempt, error.retry_after_s))
            attempt += 1

    async def chat(
        self, messages: Sequence[Message], *, model: str, tools: Sequence[ToolSchema] = (), **params: Any
    ) -> ChatAnswer:
        """Ask ``/chat/completions`` for one answer.

        Args:
            messages: the conversation.
            model: name that the endpoint knows the model by.
            tools: tools that the model may call.
            **params: more of the request's fields, such as ``temperature`` or ``max_tokens``.

        Raises:
            ConfigError: the variable that should hold the key is not set.
            EndpointError: as for :meth:`post`; kind ``malformed`` where there is no message in the answer.
        """
        body: dict[str, Any] = {"model": model, "messages": [dict(m) for m in messages], **params}
        if tools:
            body["tools"] = [dict(tool) for tool in tools]
        answer = await self.post("chat/completions", body)
        try:
            choice = answer["choices"][0]
            message = dict(choice["message"])
            finish_reason, usage = str(choice.get("finish_reason") or ""), dict(answer.get("usage") or {})
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            url = f"{self.base_url}/chat/completions"
            raise EndpointError(
                f"POST {url}: the answer has no choices[0].message: {json.dumps(answer)[:_EXCERPT]}",
                kind="malformed",
                status=200,
                url=url,
            ) from error
        return ChatAnswer(message=message, finish_reason=finish_reason, usage=usage)

    def _connect(self) -> _Connections:
        loop = asyncio.get_running_loop()
        known = self._connections.get(loop)
        if known is None:
            import httpx  # noqa: PLC0415  (a large import that environments without endpoints do not need)

            limits = httpx.Limits(
                max_connections=self.max_concurrent, max_keepalive_connections=self.max_concurrent
            )
            client = httpx.AsyncClient(limits=limits, timeout=None)
            known = self._connections[loop] = _Connections(client, asyncio.Semaphore(self.max_concurrent))
        return known

    async def _try(
        self, client: httpx.AsyncClient, url: str, content: bytes, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        import httpx  # noqa: PLC0415  (loaded already)

        try:
            async with asyncio.timeout(self.timeout_s):
                response = await client.post(url, content=content, headers=dict(headers))
        except TimeoutError as error:
            raise EndpointError(
                f"POST {url}: no answer within {self.timeout_s:g} s", kind="timeout", url=url
            ) from error
        except httpx.HTTPError as error:
            raise EndpointError(
                f"POST {url}: {type(error).__name__}: {error}; is the server running and reachable?",
                kind="refused",
                url=url,
            ) from error
        return _read(response, url, secret=headers.get("authorization", "").removeprefix("Bearer "))

    def _pause_s(self, attempt: int, asked_s: float) -> float:
        """Return the seconds to wait after try number ``attempt``, counted from 0."""
        longest: float = min(self.backoff_s * 2.0**attempt, LONGEST_WAIT_S)
        return max(longest * (1 - random.random() / 2), asked_s)

    def _authorization(self) -> dict[str, str]:
        if self.api_key is None:
            return {}
        key = os.environ.get(self.api_key)
        if key:
            return {"authorization": f"Bearer {key}"}
        plain = re.fullmatch(r"[A-Z_][A-Z0-9_]*", self.api_key)
        named = f"variable {self.api_key}" if plain else "variable that api_key should name"
        raise ConfigError(
            f"endpoint {self.base_url}: the environment {named} is not set; api_key is the name of the"
            " variable that holds the key, never the key itself"
        )


def describe_wait(stopped: BaseException) -> str:
    """Say what went wrong before ``stopped`` ended a wait for another try; empty where nothing did."""
    found: BaseException | None = stopped
    while found is not None and not isinstance(found, EndpointError):
        found = found.__cause__ or found.__context__
    return "" if found is None else f"; the last try: {found}"


def _check_url(base_url: object) -> None:
    if not isinstance(base_url, str) or not re.match(r"https?://[^/\s]", base_url):
        raise ConfigError(f"base_url must begin with http:// or https:// and a host, got {base_url!r:.200}")
    if re.search(r"[?#]|//[^/]*@", base_url):
        raise ConfigError(
            "base_url must have neither a user, a query nor a fragment: those hold secrets that would be"
            " logged; name an environment variable with api_key"
        )


def _passing(error: EndpointError) -> bool:
    """Whether the same request may succeed later."""
    if error.kind == "status":
        return error.status in _RETRIED and error.retry_after_s <= LONGEST_WAIT_S
    return error.kind in ("refused", "timeout")


def _read(response: httpx.Response, url: str, *, secret: str) -> dict[str, Any]:
    text = response.text
    excerpt = (text.replace(secret, "***") if secret else text)[:_EXCERPT]
    if not response.is_success:
        raise EndpointError(
            f"POST {url}: status {response.status_code}: {excerpt}",
            kind="status",
            status=response.status_code,
            url=url,
            retry_after_s=_retry_after_s(response.headers.get("retry-after", "")),
        )
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise EndpointError(
            f"POST {url}: status {response.status_code}, but the body is not a JSON object: {excerpt}",
            kind="malformed",
            status=response.status_code,
            url=url,
        )
    return answer


def _retry_after_s(text: str) -> float:
    """Return the seconds of a ``Retry-After`` header, given as a number or as a date; else 0."""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return 0.0
