"""A model's own chat template, run in a sandbox.

The environment is that of transformers' ``apply_chat_template``: the same filters, functions and
extensions. One thing differs: ``strftime_now`` gives a fixed date, so that prompts do not change at midnight.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from hyperrl.agents.rendering.encoder import ESCAPE, RESERVED
from hyperrl.errors import MissingExtraError, TemplateError

try:
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as error:
    raise MissingExtraError("jinja2", "agents") from error

__all__ = ["FIXED_DATE", "ChatTemplate"]

FIXED_DATE = datetime(2024, 7, 26)
"""The day that templates believe it is; Llama 3's own default."""


class ChatTemplate:
    """A compiled chat template. Safe to share by threads.

    Args:
        source: the Jinja text.
        named_tokens: ``bos_token``, ``eos_token``, ... that templates insert.
        options: further variables of the template, such as ``enable_thinking``.
        origin: where it comes from, for messages.

    Raises:
        TemplateError: it is not valid Jinja.
    """

    def __init__(
        self,
        source: str,
        *,
        named_tokens: Mapping[str, str],
        options: Mapping[str, Any] | None = None,
        origin: str = "chat template",
    ) -> None:
        self.source = source
        self.origin = origin
        self._variables = {**named_tokens, **(options or {})}
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateError(f"{origin}: the chat template is not valid Jinja: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the text of a conversation; everything in it must be prepared and escaped.

        Raises:
            TemplateError: the template does not accept these messages; names their roles and its reason.
        """
        try:
            return self._template.render(
                messages=list(messages),
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._variables,
            )
        except Exception as error:  # a template is foreign code
            roles = ", ".join(message["role"] for message in messages)
            raise TemplateError(
                f"{self.origin}: the chat template refuses the messages [{roles}]:"
                f" {type(error).__name__}: {error}"
            ) from error


class _Generation(Extension):
    """``{% generation %}`` blocks, with which training templates mark what the policy says."""

    tags = {"generation"}  # noqa: RUF012 as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = FIXED_DATE.strftime
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if ensure_ascii:  # the noncharacters of the escape must stay what they are
        for mark in (ESCAPE, RESERVED):
            text = text.replace(f"\\u{ord(mark):04x}", mark)
    return text


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
