"""DeepSeek Harness, unmodified: one ``dsh`` an episode. ``docs/programs/deepseek.md`` explains every key."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hyperrl.harness.adapters.installed import KnownAdapter, KnownProgram, machine
from hyperrl.harness.cli_program import CliProgram, CliSettings
from hyperrl.harness.launching import HUGE_CONTEXT, KEY, PROVIDER, Launch, Place
from hyperrl.harness.process import Ended

__all__ = [
    "DeepSeekAdapter",
    "DeepSeekProgram",
    "DeepSeekSettings",
    "environment",
    "patch_text",
]

PACKAGE = "deepseek_harness_runtime"


def _packaged() -> Path | None:
    """Return the native program of the installed package: its ``dsh`` is a Python script around it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "runtime"
    found = [path for path in runtime.glob(f"*-runtime-*-{machine()}") if os.access(path, os.X_OK)]
    return found[0] if found else None


KNOWN = KnownProgram(
    title="DeepSeek Harness",
    command="dsh",
    variable="HYPERRL_DSH",
    first=(0, 2),
    beyond=(0, 3),
    install="pip install deepseek-harness-runtime-bin==0.2.1rc2",
    packaged=_packaged,
    env={"HOME": "/nonexistent", "DSH_HOME": "/nonexistent"},
)
"""What is known of the program. Where it is started, it writes into its home even to tell its version."""


SWITCHED_OFF = (
    # requests and uploads beside the task's own
    *("session-title-llm", "session-log-deepseek", "plugin-package-inventory-deepseek"),
    *("session-telemetry-otel", "otel", "llm-deepseek", "llm-deepseek-account"),
    *("tool-web", "web", "web-search-deepseek", "web-deepseek-api", "web-fetch-http"),
    # what rewrites or adds to the conversation
    *("repeat-tool-reminder", "tool-result-pruner", "agent-instructions", "plan-mode"),
    "image-offload",
    *("skill", "skill-filesystem", "tool-skill"),
    *("goal-round-driver", "command-goal", "tool-goal", "goal"),
    # other agents
    *("subagent", "subagent-spawn-in-process", "subagent-fork-in-process", "tool-subagent-control"),
    *("tool-subagent-list-agents", "tool-subagent", "tool-subagent-fork"),
    *("workflow-ptc", "tool-workflow", "ptc-runtime"),
)
"""Plugins that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSeekSettings:
    """How DeepSeek Harness is run.

    Attributes:
        binary: path of the program; by default the variable ``HYPERRL_DSH``, then that of the installed
            package, then ``dsh`` on the PATH.
        permission_mode: what the model's commands may do. ``workspace-write`` keeps them from writing
            elsewhere, not from the network.
        answer_tokens: most tokens of an answer that it asks for.
        any_version: run versions outside the known range too.
        patch: further entries for its list of patches, as YAML text.
    """

    binary: str = ""
    permission_mode: Literal["read-only", "workspace-write", "danger-full-access"] = "workspace-write"
    answer_tokens: int = 32_768
    any_version: bool = False
    patch: str = ""


class DeepSeekAdapter(KnownAdapter[DeepSeekSettings]):
    """Writes a patch of the profile ``headless``, and reads the last event."""

    known = KNOWN
    name = "deepseek"

    def launch(self, place: Place) -> Launch:
        patch = place.home / "hyperrl.patch.yml"
        prompt = "\n\n".join(filter(None, [place.system, place.prompt]))
        api, url = "openai-completions", place.base_url
        text = patch_text(self.settings, url, api=api, model=place.model, mcp_url=place.mcp_url)
        return Launch(
            words=(self.binary, "--profile", "headless", "--patch", str(patch), "--json", "-"),
            env=environment(self.settings, place.home, place.api_key),
            stdin=prompt,
            files={patch.name: text},
        )

    def answer(self, place: Place, ended: Ended) -> str | None:  # noqa: ARG002  # it is in the output
        for line in reversed(ended.stdout.splitlines()):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("type") == "final":
                return str(event.get("text") or "")
        return None


class DeepSeekProgram(CliProgram):
    """DeepSeek Harness as an agent program; ``env.program: deepseek`` in a config.

    Args:
        deepseek: how it is run.
        settings: limits of its process.
    """

    def __init__(self, deepseek: DeepSeekSettings | None = None, settings: CliSettings | None = None) -> None:
        super().__init__(DeepSeekAdapter(deepseek or DeepSeekSettings()), settings)


def patch_text(settings: DeepSeekSettings, base_url: str, *, api: str, model: str, mcp_url: str = "") -> str:
    """Return the changes to a profile, as YAML."""
    served = {
        "apiKeyEnv": KEY,
        "api": api,
        "baseURL": base_url,
        "models": [
            {
                "id": model,
                "contextWindow": HUGE_CONTEXT,
                "maxTokens": settings.answer_tokens,
                "input": ["text"],
            }
        ],
    }
    changes: list[dict[str, object]] = [
        *({"id": plugin, "disabled": True} for plugin in SWITCHED_OFF),
        {"id": "tool-fs", "config": {"readImage": False}},
        {"id": "compaction-basic", "config": {"auto": False}},
        {"id": "agent-default-model", "config": {"provider": PROVIDER, "model": model}},
        {"id": "llm-pi-ai", "config": {"providers": {PROVIDER: served}}},
    ]
    entries = [f"- {json.dumps(change)}" for change in changes]  # JSON is YAML
    if mcp_url:
        entries.append(_TOOLS.format(url=json.dumps(mcp_url), key=KEY))
    return "\n".join(filter(None, [*entries, settings.patch])) + "\n"


def environment(settings: DeepSeekSettings, home: Path, api_key: str) -> dict[str, str]:
    """Return what the program finds in its environment."""
    return {
        "DSH_HOME": str(home / ".dsh"),
        "DSH_PERMISSION_MODE": settings.permission_mode,
        "DSH_TELEMETRY_MODE": "DISABLED",
        KEY: api_key,
    }


_TOOLS = """- insert:
    - id: hyperrl-tools
      name: '@deepseek-ai/dsh-mcp-client'
      config:
        serverName: env
        transport: streamable-http
        url: {url}
        headers:
          authorization: !!js '"Bearer " + process.env.{key}'
        toolCallTimeoutMs: 3600000
        failOnStartupError: true"""
