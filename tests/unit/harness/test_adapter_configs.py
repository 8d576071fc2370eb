"""What is written for Codex and DeepSeek Harness: each key whose lack has hurt somebody."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hyperrl.harness.adapters.codex import CodexAdapter, CodexSettings
from hyperrl.harness.adapters.deepseek import (
    SWITCHED_OFF,
    DeepSeekAdapter,
    DeepSeekSettings,
    environment,
    patch_text,
)
from hyperrl.harness.launching import Launch, Place

KEY = "sk-hyperrl-secret"
PROMPT = "--help\n" + "x" * 200_000
PLACE = Place(
    home=Path("/home-of-it"),
    workspace=Path("/workspace"),
    base_url="http://127.0.0.1:1/s/abc/v1",
    api_key=KEY,
    model="main",
    system="Mend the repository.",
    prompt=PROMPT,
    mcp_url="http://127.0.0.1:1/s/abc/mcp",
)


def codex(**settings: Any) -> Launch:
    return CodexAdapter(CodexSettings(**settings)).launch(PLACE)


def deepseek(**settings: Any) -> Launch:
    return DeepSeekAdapter(DeepSeekSettings(**settings)).launch(PLACE)


@pytest.mark.parametrize("launch", [codex(), deepseek()], ids=["codex", "deepseek"])
def test_the_prompt_goes_through_the_input_and_the_key_through_the_environment(launch: Launch) -> None:
    assert PROMPT in launch.stdin
    assert all(len(word) < 1000 for word in launch.words)
    assert launch.words[-1] == "-"
    assert [name for name, value in launch.env.items() if value == KEY] == ["HYPERRL_KEY"]
    for text in (*launch.files.values(), *launch.words):
        assert KEY not in text


def test_codex_neither_waits_for_ever_nor_compacts_nor_runs_half_an_answer() -> None:
    launch = codex(retries=1, config="model_verbosity = 'low'")
    config = tomllib.loads(launch.files[".codex/config.toml"])
    assert "--strict-config" in launch.words  # else unknown keys are left out unseen
    assert "--ephemeral" in launch.words
    assert config["features"]["unbounded_connection_retries"] is False
    assert config["responses"]["process_mode"] == "after_complete_response"
    provider = config["model_providers"]["hyperrl"]
    assert (provider["request_max_retries"], provider["stream_max_retries"]) == (1, 1)
    assert (provider["wire_api"], provider["supports_websockets"]) == ("responses", False)
    assert (provider["base_url"], provider["env_key"]) == (PLACE.base_url, "HYPERRL_KEY")
    assert config["shell_environment_policy"]["exclude"] == ["HYPERRL_*", "CODEX_*"]
    assert config["mcp_servers"]["env"]["required"] is True
    assert config["model_verbosity"] == "low"
    for feature in ("plugins", "apps", "goals"):
        assert config["features"][feature] is False
    assert config["agents"]["enabled"] is False
    assert config["project_doc_max_bytes"] == 0
    [model] = json.loads(launch.files[".codex/catalog.json"])["models"]
    assert model["context_window"] == model["max_context_window"] == 1_000_000_000
    assert model["base_instructions"].endswith("Mend the repository.")
    assert "apply_patch_tool_type" not in model
    [with_patch] = json.loads(codex(apply_patch=True).files[".codex/catalog.json"])["models"]
    assert with_patch["apply_patch_tool_type"] == "freeform"


def entries(text: str) -> dict[str, Any]:
    found = [json.loads(line[2:]) for line in text.splitlines() if line.startswith("- {")]
    return {entry["id"]: entry for entry in found}


def test_dsh_neither_compacts_nor_asks_beside_the_task_nor_lowers_its_cap() -> None:
    launch = deepseek(answer_tokens=512, patch='- {"id": "tool-todo", "disabled": true}')
    text = launch.files["hyperrl.patch.yml"]
    found = entries(text)
    assert found["compaction-basic"]["config"] == {"auto": False}
    for plugin in ("session-title-llm", "session-log-deepseek", "tool-result-pruner", "subagent"):
        assert found[plugin] == {"id": plugin, "disabled": True}
    assert found["tool-todo"]["disabled"]
    provider = found["llm-pi-ai"]["config"]["providers"]["hyperrl"]
    [model] = provider["models"]
    assert (model["contextWindow"], model["maxTokens"], model["input"]) == (1_000_000_000, 512, ["text"])
    assert (provider["api"], provider["baseURL"]) == ("openai-completions", PLACE.base_url)
    assert "failOnStartupError: true" in text
    assert "process.env.HYPERRL_KEY" in text
    assert launch.env["DSH_TELEMETRY_MODE"] == "DISABLED"
    assert launch.env["DSH_PERMISSION_MODE"] == "workspace-write"
    assert launch.stdin.startswith("Mend the repository.\n\n--help")


def test_a_shared_dsh_asks_in_the_format_that_names_the_session() -> None:
    text = patch_text(DeepSeekSettings(), PLACE.base_url, api="openai-responses", model="main")
    assert entries(text)["llm-pi-ai"]["config"]["providers"]["hyperrl"]["api"] == "openai-responses"
    assert "hyperrl-tools" not in text
    assert set(SWITCHED_OFF) < set(entries(text))
    assert environment(DeepSeekSettings(), PLACE.home, KEY)["DSH_HOME"] == "/home-of-it/.dsh"
