"""Tools: Python functions that a policy may call.

A tool does not raise at its caller. Whatever goes wrong, from arguments that do not fit to a process
that had to be killed, becomes a text that the policy reads and a status that the trajectory keeps. Only a
server that is gone for good ends the episode, as its failure.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any, overload

from hyperrl.envs.driving import being_cancelled
from hyperrl.envs.tool_process import BlockingFunction, call_blocking
from hyperrl.envs.tool_schema import ToolSignature, coerce_arguments, read_signature
from hyperrl.envs.tool_text import describe_error, result_text, shorten
from hyperrl.errors import ToolDefinitionError, ToolServerError
from hyperrl.sampling import ToolSchema

__all__ = ["Tool", "ToolResult", "tool"]

_LEAST_OUTPUT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What came of a call. A function may return one to set the status itself.

    Attributes:
        status: ``ok``, ``bad_arguments``, ``timeout``, ``error``, or one of your own; of a call that was not
            run, why.
        text: what the policy reads.
        repairs: what was mended in the arguments before it ran.
    """

    status: str
    text: str
    repairs: tuple[str, ...] = ()

    def told(self) -> tuple[str, str]:
        """Return status and text of a result that a tool returned itself.

        Raises:
            ToolDefinitionError: one of them is no ``str``.
        """
        for name in ("status", "text"):
            if not isinstance(value := getattr(self, name), str):
                raise ToolDefinitionError(f"the {name} of a ToolResult must be a str, got {value!r:.80}")
        return self.status, self.text


class Tool:
    """A function that a policy may call. Made by :func:`tool`.

    On an environment it still works as the method it was: ``env.look(direction="north")``.

    Attributes:
        name: what the policy calls it.
        function: the function itself.
        timeout_s: seconds a call may take; ``None`` sets no limit.
        max_output_chars: most characters of a result; head and tail of a longer one are kept.
        max_input_chars: most characters of a call's text; a longer one is not run.
        schema: the tool in the chat-completions shape.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        timeout_s: float | None = None,
        max_output_chars: int = 16_000,
        max_input_chars: int = 100_000,
        signature: ToolSignature | None = None,
    ) -> None:
        if isinstance(function, staticmethod):
            function = function.__func__
        if not callable(function):
            raise ToolDefinitionError(
                f"@tool stands above a function, got {function!r}; a name is given as @tool(name=...)"
            )
        self.name: str = name or function.__name__
        self.function = function
        self.timeout_s = timeout_s
        self.max_output_chars = max_output_chars
        self.max_input_chars = max_input_chars
        self._check_limits()
        self._signature = signature or read_signature(function, self.name)
        self._is_async = inspect.iscoroutinefunction(function)
        self._blocking: BlockingFunction | None = None
        if timeout_s is not None and not self._is_async:
            self._blocking = _blocking_function(function, self.name)
        self.__doc__ = function.__doc__

    def _check_limits(self) -> None:
        if self.timeout_s is not None and not 0 < self.timeout_s < float("inf"):
            raise ToolDefinitionError(
                f"tool {self.name!r}: timeout must be a number of seconds above 0, got {self.timeout_s}"
            )
        if self.max_output_chars < _LEAST_OUTPUT or self.max_input_chars < 1:
            raise ToolDefinitionError(
                f"tool {self.name!r}: max_output_chars must be at least {_LEAST_OUTPUT} and"
                f" max_input_chars at least 1, got {self.max_output_chars} and {self.max_input_chars}"
            )

    @property
    def schema(self) -> ToolSchema:
        """The tool in the chat-completions shape."""
        return self._signature.schema

    @property
    def suspends(self) -> bool:
        """Whether a call waits for something, so that it needs an event loop."""
        return self._is_async or self._blocking is not None

    @overload
    def __get__(self, instance: None, owner: type) -> Tool: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Tool | Callable[..., Any]:
        if instance is None:
            return self
        return MethodType(self.function, instance) if self._signature.is_method else self.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, unchecked."""
        return self.function(*args, **kwargs)

    async def call(self, arguments: Mapping[str, Any], *, env: object = None) -> ToolResult:
        """Coerce ``arguments`` to the signature and run the tool; what goes wrong is in the result.

        Args:
            arguments: what the policy wrote, by name.
            env: the ``self`` of a tool that is a method.

        Raises:
            ToolServerError: whatever runs the tool is gone, so that no call can succeed any more.
        """
        try:
            values, repairs = coerce_arguments(self._signature, arguments)
        except ValueError as error:
            text = shorten(f"Error: {error}", self.max_output_chars)
            return ToolResult(status="bad_arguments", text=text)
        if self._blocking is not None and self.timeout_s is not None:
            status, text = await call_blocking(
                self._blocking, values, timeout_s=self.timeout_s, limit=self.max_output_chars
            )
        else:
            status, text = await self._run(self.__get__(env), values)
        text = text if status == "ok" else f"Error: {text}"
        return ToolResult(status=status, text=shorten(text, self.max_output_chars), repairs=repairs)

    async def _run(self, function: Callable[..., Any], values: dict[str, Any]) -> tuple[str, str]:
        try:
            value = function(**values)
            if self._is_async:
                value = await value if self.timeout_s is None else await self._within(value, self.timeout_s)
            elif inspect.iscoroutine(value):
                value.close()
                raise TypeError("the tool returned a coroutine; it must be declared with async def")
            if isinstance(value, ToolResult):
                return value.told()
            return "ok", result_text(value)
        except ToolServerError:
            raise  # the episode's failure, not a text: the policy cannot do anything about it
        except _OverrunError:
            return "timeout", f"the tool did not finish within {self.timeout_s:g} s and was stopped"
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            return "error", "what the tool waited for was cancelled"
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a tool raises is for the policy to read
            return "error", describe_error(error)

    async def _within(self, value: Awaitable[Any], timeout_s: float) -> Any:
        clock = asyncio.timeout(timeout_s)
        try:
            async with clock:
                return await value
        except TimeoutError as error:
            if clock.expired():
                raise _OverrunError from error
            raise

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


class _OverrunError(Exception):
    """The tool's own limit ran out, as against a TimeoutError that its code raised."""


def _blocking_function(function: Callable[..., Any], name: str) -> BlockingFunction:
    where = f"tool {name!r}: timeout= on a blocking function runs it in a process that can be killed"
    if function.__qualname__ != function.__name__ or not function.__name__.isidentifier():
        raise ToolDefinitionError(
            f"{where}, so it must be a module-level function, not {function.__qualname__!r}."
            " Move it out, or make it async (then it may be a method), or drop the timeout"
        )
    module, path = function.__module__, None
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is None and file is None:
            raise ToolDefinitionError(f"{where}, which cannot import it from here; put it into a module file")
        module, path = (spec.name, None) if spec is not None else (module, str(Path(file or "").resolve()))
    return BlockingFunction(module=module, name=function.__name__, main_path=path)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    timeout: float | None = None,
    max_output_chars: int = 16_000,
    max_input_chars: int = 100_000,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = None,
    max_output_chars: int = 16_000,
    max_input_chars: int = 100_000,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Offer a function to the policy, as ``@tool`` or ``@tool(timeout=2.0)``.

    The schema comes from the signature and the Google-style docstring: every parameter needs a type
    and a line under ``Args:``. Used on a method of a :class:`TextEnv`, or on a module-level function
    that a class then names (``calculator = calculator``).

    Args:
        function: a plain or an async function.
        name: what the policy calls it; by default the function's name.
        timeout: seconds a call may take. An async tool is cancelled. A blocking one runs in another
            process, which is killed, and must be a module-level function with picklable arguments.
        max_output_chars: most characters of a result; head and tail of a longer one are kept.
        max_input_chars: most characters of a call's text; a longer one is not run.

    Raises:
        ToolDefinitionError: it cannot be offered; the message says what to change.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        return Tool(
            function,
            name=name,
            timeout_s=timeout,
            max_output_chars=max_output_chars,
            max_input_chars=max_input_chars,
        )

    return decorate if function is None else decorate(function)
