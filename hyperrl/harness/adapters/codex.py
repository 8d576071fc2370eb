"""Codex, unmodified: ``codex exec`` against the gateway. ``docs/programs/codex.md`` explains every key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hyperrl.harness.adapters.installed import KnownAdapter, KnownProgram, machine
from hyperrl.harness.cli_program import CliProgram, CliSettings
from hyperrl.harness.launching import HUGE_CONTEXT, KEY, PROVIDER, Launch, Place
from hyperrl.harness.process import Ended

__all__ = ["CodexAdapter", "CodexProgram", "CodexSettings"]


def _native(found: Path) -> Path | None:
    """Return the native program: the npm package's ``codex`` is a script around it, and may outlive it."""
    if found.suffix != ".js":
        return found
    for root in (found.parents[2], found.parents[1] / "node_modules" / "@openai"):
        for native in root.glob(f"codex-*-{machine()}/vendor/*/bin/codex"):
            return native
    return None


KNOWN = KnownProgram(
    title="Codex",
    command="codex",
    variable="HYPERRL_CODEX",
    first=(0, 171),
    beyond=(0, 172),
    install="npm install -g @openai/codex@0.171.0",
    native=_native,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexSettings:
    """How Codex is run.

    Attributes:
        binary: path of the program; by default the variable ``HYPERRL_CODEX``, then ``codex`` on the PATH.
        sandbox_mode: what the model's commands may do. In ``workspace-write`` they see no network, so
            neither the gateway, and write to the workspace only; Codex hides its ``.git`` from them. With
            ``danger-full-access`` they can do what this process can.
        instructions: the base instructions; the environment's system prompt follows them.
        apply_patch: offer Codex's own freeform tool for edits beside its shell.
        output_tokens: most tokens of a tool's result that the model reads.
        retries: how often a request is repeated that failed on the way.
        any_version: run versions outside the known range too.
        config: further settings as TOML text, put before the tables of ours.
    """

    binary: str = ""
    sandbox_mode: Literal["read-only", "workspace-write", "danger-full-access"] = "workspace-write"
    instructions: str = "You are a coding agent. Use the tools to solve the task, then answer."
    apply_patch: bool = False
    output_tokens: int = 10_000
    retries: int = 2
    any_version: bool = False
    config: str = ""


class CodexAdapter(KnownAdapter[CodexSettings]):
    """Writes Codex's configuration and reads its last message."""

    known = KNOWN
    name = "codex"

    def launch(self, place: Place) -> Launch:
        return Launch(
            words=(
                *(self.binary, "exec", "--json", "--strict-config", "--skip-git-repo-check", "--ephemeral"),
                *("-C", str(place.workspace), "-o", str(_answer_file(place)), "-"),
            ),
            env={"CODEX_HOME": str(place.home / ".codex"), KEY: place.api_key},
            stdin=place.prompt,
            files={
                ".codex/config.toml": self._config(place),
                ".codex/catalog.json": json.dumps(self._catalog(place)),
            },
        )

    def answer(self, place: Place, ended: Ended) -> str | None:  # noqa: ARG002  # it is in a file
        path = _answer_file(place)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def _config(self, place: Place) -> str:
        settings = self.settings
        top = {
            "model": place.model,
            "model_provider": PROVIDER,
            "model_catalog_json": str(place.home / ".codex" / "catalog.json"),
            "approval_policy": "never",
            "sandbox_mode": settings.sandbox_mode,
            "web_search": "disabled",
            "check_for_update_on_startup": False,
            "suppress_unstable_features_warning": True,
            "project_doc_max_bytes": 0,
            "allow_login_shell": False,
        }
        tables = {**_TABLES, f"model_providers.{PROVIDER}": self._provider(place)}
        if place.mcp_url:
            tables["mcp_servers.env"] = {"url": place.mcp_url, "bearer_token_env_var": KEY, **_MCP_LIMITS}
        parts = ["\n".join(_lines(top)), settings.config.strip()]
        parts += [f"[{name}]\n" + "\n".join(_lines(table)) for name, table in tables.items()]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _provider(self, place: Place) -> dict[str, object]:
        return {
            "name": PROVIDER,
            "base_url": place.base_url,
            "wire_api": "responses",
            "env_key": KEY,
            "requires_openai_auth": False,
            "supports_websockets": False,
            "request_max_retries": self.settings.retries,
            "stream_max_retries": self.settings.retries,
            "stream_idle_timeout_ms": 600_000,
        }

    def _catalog(self, place: Place) -> dict[str, object]:
        model: dict[str, object] = {
            "slug": place.model,
            "display_name": place.model,
            "supported_reasoning_levels": [],
            "shell_type": "unified_exec",
            "visibility": "list",
            "supported_in_api": True,
            "priority": 1,
            "support_verbosity": False,
            "truncation_policy": {"mode": "tokens", "limit": self.settings.output_tokens},
            "experimental_supported_tools": [],
            "base_instructions": "\n\n".join(filter(None, [self.settings.instructions, place.system])),
            "context_window": HUGE_CONTEXT,
            "max_context_window": HUGE_CONTEXT,
            "input_modalities": ["text"],
            "include_skills_usage_instructions": False,
        }
        if self.settings.apply_patch:
            model["apply_patch_tool_type"] = "freeform"
        return {"models": [model]}


class CodexProgram(CliProgram):
    """Codex as an agent program; ``env.program: codex`` in a config.

    Args:
        codex: how Codex is run.
        settings: limits of its process.
    """

    def __init__(self, codex: CodexSettings | None = None, settings: CliSettings | None = None) -> None:
        super().__init__(CodexAdapter(codex or CodexSettings()), settings)


_TABLES: dict[str, Mapping[str, object]] = {
    "responses": {"process_mode": "after_complete_response"},
    "analytics": {"enabled": False},
    "history": {"persistence": "none"},
    "agents": {"enabled": False},
    "skills": {"include_instructions": False},
    "skills.bundled": {"enabled": False},
    "tools.experimental_request_user_input": {"enabled": False},
    "features": {
        "plugins": False,
        "apps": False,
        "goals": False,
        "shell_snapshot": False,
        "image_generation": False,
        "view_image": False,
        "unbounded_connection_retries": False,
    },
    "sandbox_workspace_write": {"exclude_slash_tmp": True},
    "shell_environment_policy": {"inherit": "core", "exclude": ["HYPERRL_*", "CODEX_*"]},
}
_MCP_LIMITS: Mapping[str, object] = {"required": True, "startup_timeout_sec": 30, "tool_timeout_sec": 3600}


def _lines(table: Mapping[str, object]) -> list[str]:
    """Return the lines of a TOML table. JSON's texts, numbers, truths and lists are TOML's too."""
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


def _answer_file(place: Place) -> Path:
    return place.home / "answer.txt"
