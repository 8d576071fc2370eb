"""``hyperrl play`` as a person uses it: typed lines piped in, at a terminal, and stopped."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hyperrl.errors import ConfigError
from hyperrl.wiring.person import describe_tool, write_tool_call

GSM8K = ("hyperrl/GSM8K-v0", "--task", "3")
COMMAND = [sys.executable, "-m", "hyperrl.cli", "play"]
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}


def play(typed: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=typed,
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=ENVIRONMENT,
        encoding="utf-8",
    )


def test_tools_gold_rewards_and_the_transcript(tmp_path: Path) -> None:
    saved = tmp_path / "episode.json"
    answer = '"""\nso it is\n#### 514\n"""\n'
    typed = f"/tool calculator 3 + 4\n/tool calc 1\n/bogus\n/help\n<tool_call>{{]</tool_call>\n{answer}"
    done = play(typed, *GSM8K, "--env-arg", "mode=calculator", "--save", str(saved))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "/tool calculator expression=string" in lines
    assert lines[lines.index("tool calculator: ok") + 1] == "7"
    assert "no tool 'calc': only calculator." in lines
    assert any(line.startswith("there is no /bogus; /help lists") for line in lines)
    assert any("invalid_json" in line for line in lines)
    transcript = json.loads(saved.read_text(encoding="utf-8"))
    assert [turn.get("action", "")[:11] for turn in transcript["turns"]] == [
        "",
        "<tool_call>",
        "<tool_call>",
        "so it is\n##",
    ]
    assert transcript["ended"]
    assert transcript["reward"] == float(lines[-2].removeprefix("total reward: "))
    assert [term["name"] for term in transcript["rewards"]] == ["correct", "format"]
    assert lines[-1] == f"wrote {saved}"


def test_the_gold_can_be_played_turn_by_turn() -> None:
    done = play("/gold\n" * 6, "hyperrl/Wordle-v0", "--seed", "4")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "total reward: 1"


def test_leaving_early_scores_nothing(tmp_path: Path) -> None:
    for typed in ("/quit\n", "", "/help\n"):
        done = play(typed, *GSM8K)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == "left before the end: nothing is scored"


def test_an_episode_whose_turns_are_used_up_is_scored_as_it_stands() -> None:
    done = play("/tool calculator 1\n" * 20, *GSM8K, "--env-arg", "mode=calculator")
    lines = done.stdout.splitlines()
    assert "the turns are used up (8); scored as it stands" in lines
    assert lines[-1] == "total reward: 0"


def test_an_unscored_term_shows_its_cause(tmp_path: Path) -> None:
    (tmp_path / "moody.py").write_text(
        "import gymnasium\n"
        "from hyperrl.envs import TextEnv, Unscored, reward\n"
        "class Moody(TextEnv):\n"
        "    def tasks(self):\n        return [{}]\n"
        "    def start(self):\n        return 'say something'\n"
        "    @reward\n    def judged(self, answer):\n        return Unscored(f'no verdict on {answer}')\n"
        "gymnasium.register('Moody-v0', entry_point=Moody)\n",
        encoding="utf-8",
    )
    done = play("//slash\n", "moody:Moody-v0", cwd=tmp_path)
    assert done.stdout.splitlines()[-2:] == [
        "reward judged: unscored x 1 (unscored: no verdict on /slash)",
        "total reward: unscored",
    ]


def test_rewards_of_steps_show_when_they_are_earned(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "import gymnasium\n"
        "from hyperrl.envs import TextEnv, reward\n"
        "class Steps(TextEnv):\n"
        "    def tasks(self):\n        return [{}]\n"
        "    def start(self):\n        return 'begin'\n"
        "    def reply(self, turn):\n        return 'go on' if turn < 1 else None\n"
        "    @reward(at='step', weight=0.5)\n    def length(self, action):\n        return len(action)\n"
        "    @reward\n    def done(self):\n        return 1\n"
        "gymnasium.register('Steps-v0', entry_point=Steps)\n",
        encoding="utf-8",
    )
    done = play("ab\nabcd\n", "steps:Steps-v0", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[1:3] == ["reward length: 2 x 0.5", "go on"], done.stderr
    assert sorted(lines[3:-1]) == ["reward done: 1 x 1", "reward length: 4 x 0.5"]
    assert lines[-1] == "total reward: 4"


def test_bad_input_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    there = tmp_path / "there.json"
    there.write_text("mine", encoding="utf-8")
    refused = play("", *GSM8K, "--save", str(there))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "exists already" in refused.stderr
    assert there.read_text(encoding="utf-8") == "mine"
    unknown = play("", "hyperrl/GSM8K-v0", "--task", "nowhere")
    assert (unknown.returncode, "nowhere" in unknown.stderr) == (2, True)


def test_ctrl_c_ends_cleanly_and_keeps_the_transcript(tmp_path: Path) -> None:
    saved = tmp_path / "episode.json"
    with subprocess.Popen(
        [*COMMAND, *GSM8K, "--save", str(saved)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "left before the end: nothing is scored" in out
    assert json.loads(saved.read_text(encoding="utf-8"))["ended"] is False


def test_at_a_terminal_there_is_a_prompt_and_help() -> None:
    person, terminal = pty.openpty()
    try:
        with subprocess.Popen(
            [*COMMAND, *GSM8K],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        ) as process:
            os.write(person, b"/gold\n")
            out, _ = process.communicate(timeout=60)
    finally:
        os.close(person)
        os.close(terminal)
    assert process.returncode == 0
    text = out.decode()
    assert "/tool NAME ARG=VALUE" in text
    assert "> " in text
    assert "total reward: 1" in text


TOOL = {
    "type": "function",
    "function": {
        "name": "order",
        "description": "Order things.",
        "parameters": {
            "type": "object",
            "properties": {
                "item": {"type": "string", "description": "what"},
                "count": {"type": "integer", "description": "how many"},
                "speed": {"enum": ["slow", "fast"], "description": "how"},
            },
            "required": ["item", "count"],
        },
    },
}


def test_typed_calls_become_what_a_policy_would_write() -> None:
    action = write_tool_call('order item="12 \u00e4pfel" count=3 speed=fast', [TOOL])
    body = json.loads(action.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert body == {"name": "order", "arguments": {"item": "12 \u00e4pfel", "count": 3, "speed": "fast"}}
    assert describe_tool(TOOL).splitlines()[0] == "/tool order item=string count=integer [speed=slow|fast]"
    for text, message in [
        ("order 5", "must look like name=value; the arguments are item="),
        ('order item="', "cannot be read"),
        ("ordr", r"no tool 'ordr': only order.* Did you mean 'order'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            write_tool_call(text, [TOOL])
    with pytest.raises(ConfigError, match="there are no tools here"):
        write_tool_call("order", [])


NESTED = {
    "type": "function",
    "function": {
        "name": "order",
        "parameters": {
            "$defs": {
                "Item": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "size": {"$ref": "#/$defs/Size"}},
                    "required": ["name"],
                },
                "Size": {"enum": ["small", "big"]},
            },
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                "gift": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            },
            "required": ["items"],
        },
    },
}


def test_nested_arguments_are_described_and_can_be_typed_as_json() -> None:
    assert describe_tool(NESTED).splitlines()[0] == (
        "/tool order items=[{name=string, [size=small|big]}, ...] [gift=boolean|null]"
    )
    items = [{"name": "a lamp", "size": "big"}, {"name": "x"}]
    whole = {"items": items, "gift": True}
    for text in (
        f"order items={json.dumps(items)} gift=true",
        f"order gift=true items={json.dumps(items)}",
        'order items="[{name: a lamp, size: big}, {name: x}]" gift=true',
        f"order {json.dumps(whole)}",
    ):
        action = write_tool_call(text, [NESTED])
        body = json.loads(action.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        assert body["arguments"] == whole
    with pytest.raises(ConfigError, match="no JSON object"):
        write_tool_call('order {"items": ', [NESTED])


def test_a_transcript_that_cannot_be_written_is_refused_before_the_first_move(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    refused = play("1\n", *GSM8K, "--save", str(tmp_path / "file" / "episode.json"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "file is not a folder" in refused.stderr
    made = tmp_path / "new" / "folder" / "episode.json"
    assert play("1\n", *GSM8K, "--save", str(made)).returncode == 0
    assert json.loads(made.read_text(encoding="utf-8"))["turns"][1]["action"] == "1"


def test_windows_line_ends_are_no_part_of_an_answer(tmp_path: Path) -> None:
    saved = tmp_path / "episode.json"
    play("#### 1\r\n", *GSM8K, "--save", str(saved))
    assert json.loads(saved.read_text(encoding="utf-8"))["turns"][1]["action"] == "#### 1"
