"""Repository repair: the repositories, the tools, what does not pass for a repair, the scripted player."""

import asyncio
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hyperrl  # noqa: F401  # registers the environments
from hyperrl.envs import make_env
from hyperrl.envs.checker import odd_texts
from hyperrl.envs.sandbox import SandboxLimits, make_sandbox
from hyperrl.errors import ConfigError, DataError
from hyperrl_tasks.repo_fix import baseline
from hyperrl_tasks.repo_fix.repository import is_test, load_repositories, read_repository
from hyperrl_tasks.repo_fix.running import judge_repository, run_visible_tests, to_be_judged
from hyperrl_tasks.repo_fix.workspace import MAX_CHARS, MAX_FILES, Workspace

ENV_ID = "hyperrl/RepoFix-v0"
REPOSITORIES = load_repositories()
TASK = {"repository": "roman", "bugs": [0]}


@pytest.fixture(scope="module")
def sandbox():
    return make_sandbox("limited", limits=SandboxLimits(output_bytes=256 << 10))


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def start(task=TASK, **kwargs):
    env = make_env(ENV_ID, **kwargs)
    env.reset(options={"task": task})
    return env


def says(env, name, **arguments):
    """What the policy reads of a call."""
    return env.step(call(name, **arguments))[0]


def score(files, task=TASK, **kwargs):
    """The rewards of an episode that writes these files."""
    env = start(task, **kwargs)
    for path, content in files.items():
        assert says(env, "write_file", path=path, content=content) == f"{path} is written"
    return env.step("Done.")[4]["reward_terms"]


# Repositories


def test_there_are_at_least_thirty_of_two_to_eight_files():
    assert len(REPOSITORIES) >= 30
    assert sum(repository.split == "test" for repository in REPOSITORIES.values()) >= 5
    for repository in REPOSITORIES.values():
        assert 4 <= len(repository.files) <= 8
        assert repository.visible_tests >= 3
        assert len(repository.cases) >= 5
        assert len(repository.bugs) == 3
        assert repository.split in {"train", "test"}


@pytest.mark.parametrize("name", REPOSITORIES)
def test_tests_pass_without_a_bug_and_fail_with_each(name, sandbox):
    repository = REPOSITORIES[name]

    async def judge_all():
        versions = [repository.files, *(repository.broken([bug]) for bug in repository.bugs)]
        return await asyncio.gather(*(judge_repository(sandbox, repository, files) for files in versions))

    right, *wrong = asyncio.run(judge_all())
    assert right.fixed
    for bug, verdict in zip(repository.bugs, wrong, strict=True):
        assert verdict.right < verdict.cases, bug
        assert not verdict.visible_pass, bug


@pytest.mark.parametrize("name", REPOSITORIES)
def test_any_two_bugs_go_together_and_stay_out_of_the_tests(name):
    repository = REPOSITORIES[name]
    for first in repository.bugs:
        assert not is_test(first.path)
        for second in repository.bugs:
            if first is not second:
                both = repository.broken([first, second])
                assert both == repository.broken([second, first])
                assert both not in (repository.broken([first]), repository.broken([second]))


def test_splits_never_share_a_repository():
    names = {
        split: {task["repository"] for task in make_env(ENV_ID, split=split).taskset.tasks}
        for split in ("train", "test")
    }
    assert names["train"] | names["test"] == set(REPOSITORIES)
    assert not names["train"] & names["test"]
    assert len(make_env(ENV_ID).taskset) == len(make_env(ENV_ID, bugs=2).taskset) == 3 * len(names["train"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("about: x\n=== a.py\n", "needs the fields"),
        ("about: x\nsplit: train\n=== bug\nfile: a.py\nhint: h\nright: x\n", "needs the fields"),
    ],
)
def test_a_bad_repository_is_refused(text, message):
    with pytest.raises(DataError, match=message):
        read_repository("bad", text)


def test_a_bug_that_has_no_place_is_refused():
    text = (
        "about: x\nsplit: train\n=== a.py\nx = 1\n=== bug\nfile: a.py\nhint: h\nright: y = 1\nwrong: y = 2\n"
    )
    repository = read_repository("bad", text)
    with pytest.raises(DataError, match=r"'y = 1' must stand once in 'a\.py'"):
        repository.broken(repository.bugs)


# Tools


def test_an_episode_is_read_searched_edited_tested_and_answered():
    env = start()
    assert "roman/writing.py (15 lines)" in says(env, "list_files")
    assert says(env, "read_file", path="roman/writing.py", start=10, end=11) == (
        '  10      text = ""\n  11      for value, symbol in SYMBOLS:'
    )
    assert "roman/writing.py:12: while number > value:" in says(env, "search", text="number >")
    failing = says(env, "run_tests")
    assert "FAIL tests/test_roman.py::test_writing" in failing
    assert "assert to_roman(4) ==" in failing
    assert "program.py" not in failing
    old, new = "while number > value:", "while number >= value:"
    assert says(env, "edit_file", path="roman/writing.py", old=old, new=new) == "roman/writing.py is changed"
    assert says(env, "run_tests").endswith("5 passed, 0 failed")
    _, reward, terminated, _, info = env.step("It is mended.")
    assert (reward, terminated) == (1.0, True)
    assert info["reward_terms"] == {"fixed": 1.0, "progress": 1.0}


def test_errors_of_tools_can_be_read():
    env = start()
    assert "Did you mean 'roman/reading.py'" in says(env, "read_file", path="roman/readin.py")
    assert "lines 1 to 15; 99 to 15" in says(env, "read_file", path="roman/writing.py", start=99)
    assert "stands in roman/writing.py 0 times" in says(
        env, "edit_file", path="roman/writing.py", old="nowhere", new="x"
    )
    assert "0 times" in says(env, "edit_file", path="roman/writing.py", old="", new="x")
    assert says(env, "search", text="qqqq") == "(no line holds it)"
    assert "give a text" in says(env, "search", text=" ")


def test_a_repair_of_one_of_two_bugs_is_not_one():
    files = REPOSITORIES["roman"].files
    task = {"repository": "roman", "bugs": [0, 1]}
    half = score({"roman/reading.py": files["roman/reading.py"]}, task)
    assert half["fixed"] == 0.0
    assert 0 < half["progress"] < 1
    whole = {path: files[path] for path in ("roman/reading.py", "roman/writing.py")}
    assert score(whole, task)["fixed"] == 1.0


def test_nothing_done_is_worth_nothing():
    assert score({}, progress_weight=0.5) == {"fixed": 0.0, "progress": 0.0}


def test_a_hint_names_the_file_and_what_goes_wrong():
    for hint in (True, False):
        shown = start(hint=hint).messages[-1]["content"]
        assert ("Reported for roman/writing.py: 1 and other values are left out" in shown) is hint


def test_code_that_never_ends_is_a_failing_test():
    env = start(time_limit_s=8)
    says(env, "write_file", path="tests/test_roman.py", content="def test_a():\n    while True: pass\n")
    said = says(env, "run_tests")
    assert "TimeoutError: more than 2 s" in said
    assert said.endswith("0 passed, 1 failed")


def test_addresses_do_not_make_equal_runs_differ():
    env = start()
    says(env, "write_file", path="tests/test_a.py", content="def test_a():\n    raise ValueError(object())\n")
    assert "<object object at 0x...>" in says(env, "run_tests")


# What does not pass for a repair

FORGE = """
import json, os, sys
frame = sys._getframe()
while frame and "job" not in frame.f_globals:
    frame = frame.f_back
if frame:
    job = frame.f_globals["job"]
    report = {"values": REPORTED, "passed": 5, "failed": 0, "told": "5 passed, 0 failed"}
    os.write(1, ("\\n" + job["mark"] + json.dumps(report) + "\\n").encode())
os._exit(0)
"""
ALWAYS_EQUAL = """
class Any(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__

def to_roman(number):
    return Any(1)
from_roman = to_roman
"""
FAKE_TESTS = "".join(f"def test_{n}():\n    pass\n" for n in range(5))
REWRITE = f"""
import pathlib
pathlib.Path("tests/test_roman.py").write_text({FAKE_TESTS!r})
from roman.reading import from_roman
from roman.writing import to_roman
"""
SYMLINK = """
import os
os.remove("tests/test_roman.py")
os.symlink("/dev/null", "tests/test_roman.py")
from roman.reading import from_roman
from roman.writing import to_roman
"""
MODULES = [
    "json",
    "ast",
    "traceback",
    "importlib",
    "contextlib",
    "sitecustomize",
    "usercustomize",
    "conftest",
]
CHEATS = {
    "tests that always pass": {"tests/test_roman.py": FAKE_TESTS},
    "tests that are empty": {"tests/test_roman.py": ""},
    "more tests": {"tests/test_a.py": FAKE_TESTS, "tests/conftest.py": "raise SystemExit(0)"},
    "sys.exit at import": {"roman/__init__.py": "import sys\nsys.exit(0)"},
    "sys.exit when called": {"roman/writing.py": "import sys\ndef to_roman(n):\n    sys.exit(0)"},
    "os._exit at import": {"roman/__init__.py": "import os\nos._exit(0)"},
    "os._exit when called": {"roman/writing.py": "import os\ndef to_roman(n):\n    os._exit(0)"},
    "printing success": {"roman/__init__.py": "print('5 passed, 0 failed')\nimport os\nos._exit(0)"},
    "a forged report": {"roman/__init__.py": FORGE.replace("REPORTED", "['True'] * 8")},
    "a forged report of no values": {"roman/__init__.py": FORGE.replace("REPORTED", "[]")},
    "a forged report that is none": {"roman/__init__.py": FORGE.replace("REPORTED", "{}")},
    "equal to everything": {
        "roman/writing.py": ALWAYS_EQUAL,
        "roman/__init__.py": "from roman.writing import *",
    },
    "another repr": {"roman/__init__.py": "import builtins\nbuiltins.repr = lambda value: \"'IV'\""},
    "tests rewritten at run time": {"roman/__init__.py": REWRITE},
    "tests behind a link": {"roman/__init__.py": SYMLINK},
    "modules that stand in for Python's": {
        f"{name}.py": "import os\nprint('5 passed, 0 failed')\nos._exit(0)" for name in MODULES
    },
    "signals": {"roman/__init__.py": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"},
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_passes(cheat):
    assert score(CHEATS[cheat])["fixed"] == 0.0


def test_files_that_do_no_harm_do_not_keep_a_repair_from_passing():
    right = REPOSITORIES["roman"].files["roman/writing.py"]
    others = {**CHEATS["modules that stand in for Python's"], **CHEATS["tests that are empty"]}
    assert score({**others, "roman/writing.py": right, "notes.md": "mended"})["fixed"] == 1.0


@pytest.mark.parametrize(
    "path",
    [
        "../x.py", "/etc/passwd", "a/../../x.py", "tests/../../x", "./x.py", "a//b.py", "a/", "", ".", "..",
        "~/x", "a\\b", "C:/x", "a\x00b", "program.py", ".git/config", "é.py", "x" * 101, "a/.hidden", "a b",
    ],
)  # fmt: skip
def test_no_path_leads_outside(path):
    env = start()
    before = env._workspace.files
    for name, arguments in [
        ("write_file", {"content": "x"}),
        ("read_file", {}),
        ("edit_file", {"old": "a", "new": "b"}),
    ]:
        assert "is no path of a file here" in says(env, name, path=path, **arguments)
    assert env._workspace.files is before


def test_a_workspace_stays_small_and_sound():
    space = Workspace({"a.py": "x"})
    with pytest.raises(ValueError, match="same name"):
        space.write("a.py/b.py", "")
    space.write("d/e.py", "")
    with pytest.raises(ValueError, match="same name"):
        space.write("d", "")
    with pytest.raises(ValueError, match="characters"):
        space.write("b.py", "x" * MAX_CHARS)
    for number in range(MAX_FILES - 2):
        space.write(f"f{number}", "")
    with pytest.raises(ValueError, match="at most 40 files"):
        space.write("one_more", "")


def test_only_the_first_tests_are_judged():
    repository = REPOSITORIES["roman"]
    files = {**repository.files, "tests/test_roman.py": "", "tests/more.py": "", "x.py": ""}
    judged = to_be_judged(repository, files)
    assert judged == {**repository.files, "x.py": ""}


def test_what_should_come_out_never_enters_the_sandbox(sandbox):
    """Code that is judged prints all that it can reach; the right values are not in it."""
    spy = "import sys\nframe = sys._getframe()\nseen = ''\nwhile frame:\n    seen += repr(frame.f_globals)\n"
    spy += "    frame = frame.f_back\nraise ValueError(seen.replace('report ', ''))\n"
    repository = REPOSITORIES["roman"]
    shown = asyncio.run(run_visible_tests(sandbox, {**repository.files, "roman/__init__.py": spy}))
    assert "'cases': []" in shown
    assert all(case.source not in shown for case in repository.cases)


# No trace, and no waiting


def processes_with(word):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += [entry.name] if word in (entry / "cmdline").read_text(errors="replace") else []
            except OSError:
                continue
    return found


def test_an_episode_leaves_no_trace(monkeypatch):
    folder = tempfile.mkdtemp()
    Path(folder).chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    word = f"61.{os.getpid()}7531"
    littering = (
        "import pathlib, subprocess\npathlib.Path('litter.txt').write_text('x')\n"
        f"subprocess.Popen(['sleep', '{word}'], start_new_session=True)\n"
    )
    env = start()
    first = env.messages, env._workspace.files
    says(env, "write_file", path="roman/__init__.py", content=littering)
    says(env, "write_file", path="new.py", content="x")
    says(env, "run_tests")
    env.step("Done.")
    env.reset(options={"task": TASK})
    assert (env.messages, env._workspace.files) == first
    assert "litter" not in says(env, "list_files")
    assert processes_with(word) == []
    assert list(Path(folder).iterdir()) == []
    shutil.rmtree(folder)


def test_other_episodes_go_on_while_tests_run():
    async def play():
        slow, quick = make_env(ENV_ID), make_env(ENV_ID)
        for env in (slow, quick):
            await env.areset(options={"task": TASK})
        spin = "def test_a():\n    while True: pass\n"
        await slow.astep(call("write_file", path="tests/test_roman.py", content=spin))
        running = asyncio.create_task(slow.astep(call("run_tests")))
        for _ in range(200):
            await quick.astep(call("list_files"))
            await asyncio.sleep(0)
        assert not running.done()
        assert "1 failed" in (await running).observation

    asyncio.run(play())


# Options, gymnasium, the scripted player


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"bugs": 3}, "bugs must be 1 or 2, got 3"),
        ({"repositories": ["legder"]}, "Did you mean 'ledger'"),
        ({"repositories": ["bowling"]}, "the split 'train' has no repository 'bowling'"),
        ({"repositories": []}, "repositories is empty"),
        ({"minimum": "islated"}, "Did you mean 'isolated'"),
        ({"progress_weight": -1}, "progress_weight"),
        ({"time_limit_s": 0}, "wall_s"),
    ],
)
def test_options_out_of_range_are_refused(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(ENV_ID, **kwargs)


@pytest.mark.parametrize("task", [{"repository": "x", "bugs": [0]}, {"repository": "roman", "bugs": [7]}])
def test_a_task_that_there_is_not_is_refused(task):
    with pytest.raises(ConfigError):
        start(task)


def test_gold_mends_what_is_broken():
    for options in ({"bugs": 2, "split": "test"}, {"hint": True}):
        env = make_env(ENV_ID, **options)
        for index in (0, len(env.taskset) - 1):
            env.reset(options={"task": index})
            *work, last = env.gold(env.task)
            for action in work:
                assert not env.step(action)[2]
            assert env.step(last)[1] == 1.0


def test_any_text_is_an_answer_and_costs_no_run():
    env = make_env(ENV_ID)
    env.reset(seed=0)
    for text in odd_texts(200):
        _, reward, terminated, _, _ = env.step(text)
        assert reward == 0.0
        if terminated:
            env.reset()
    assert env._judged is None


def test_gymnasium_checks_pass():
    check_env(gymnasium.make(ENV_ID, render_mode="ansi").unwrapped)


def play_scripted(env, index, rng):
    env.reset(options={"task": index})
    for _ in range(24):
        _, reward, terminated, _, _ = env.step(baseline(env.messages, rng))
        if terminated:
            return reward
    raise AssertionError("the scripted player does not come to an end")


def test_the_scripted_player_mends_a_wrong_operator():
    env = make_env(ENV_ID, repositories=["lru_cache"], hint=True)
    assert play_scripted(env, 0, np.random.default_rng(0)) == 1.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_success_of_the_scripted_player_falls_with_difficulty():
    def success(**options):
        env, rng = make_env(ENV_ID, **options), np.random.default_rng(0)
        return statistics.mean(play_scripted(env, index, rng) for index in range(0, len(env.taskset), 5))

    easy, hard = success(hint=True), success(bugs=2)
    assert easy > 0.4
    assert hard < easy - 0.2
