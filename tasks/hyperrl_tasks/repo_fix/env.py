"""The environment ``hyperrl/RepoFix-v0``."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

from hyperrl.envs import Task, TextEnv, reward, tool
from hyperrl.envs.sandbox import SandboxLimits, make_sandbox
from hyperrl.errors import ConfigError, nearest
from hyperrl_tasks.repo_fix.repository import Bug, Repository, load_repositories
from hyperrl_tasks.repo_fix.running import RepositoryVerdict, judge_repository, run_visible_tests
from hyperrl_tasks.repo_fix.workspace import Workspace

__all__ = ["RepoFix"]

_DONE = "I have mended the repository."
_RULES = (
    "You maintain a small Python repository in which something is broken. Look at its files, find what is"
    " wrong and mend it with the tools. When its tests pass, say so without calling a tool. You will be"
    " judged by the tests as they were at first and by others that you do not see, so changing tests does"
    " not help."
)


class RepoFix(TextEnv):
    """Find and mend what is broken in a small Python repository.

    Args:
        bugs: how many bugs there are, 1 or 2.
        hint: tell for each bug which file it is in and what goes wrong.
        repositories: names of those to play; ``None`` takes all of the split.
        minimum: the weakest level of sandbox to accept: ``none``, ``limited`` or ``isolated``.
        time_limit_s: seconds that all tests together may take.
        progress_weight: weight of the term ``progress``, the share of hidden tests that pass.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range, or no sandbox here reaches ``minimum``.
    """

    version = "1"
    system_prompt = _RULES

    def __init__(
        self,
        *,
        bugs: int = 1,
        hint: bool = False,
        repositories: Sequence[str] | None = None,
        minimum: str = "limited",
        time_limit_s: float = 20.0,
        progress_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if bugs not in (1, 2):
            raise ConfigError(f"bugs must be 1 or 2, got {bugs!r}")
        if not (math.isfinite(progress_weight) and progress_weight >= 0):
            raise ConfigError(f"progress_weight must be finite and at least 0, got {progress_weight}")
        self.bugs = bugs
        self.hint = hint
        self.repositories = _chosen(repositories, self.split)
        self.sandbox = make_sandbox(
            minimum, limits=SandboxLimits(wall_s=time_limit_s, cpu_s=time_limit_s, output_bytes=256 << 10)
        )
        self.reward_weights = {"progress": float(progress_weight)}
        self._workspace = Workspace({})
        self._judged: tuple[dict[str, str], RepositoryVerdict] | None = None

    def tasks(self) -> list[Task]:
        """Every choice of bugs in every repository of the split."""
        return [
            Task(
                f"{repository.name}-{'-'.join(map(str, places))}",
                {"repository": repository.name, "bugs": places},
            )
            for repository in self.repositories
            for places in itertools.combinations(range(len(repository.bugs)), self.bugs)
        ]

    def start(self, task: Task) -> str:
        """Say what the repository is and which files it has.

        Raises:
            ConfigError: a task that was given names a repository or a bug that there is not.
        """
        repository, bugs = _planted(task)
        self._workspace = Workspace(repository.broken(bugs))
        self._judged = None
        parts = [f"The repository {repository.name}: {repository.about}", self._workspace.listing()]
        if self.hint:
            parts += [f"Reported for {bug.path}: {bug.hint}" for bug in bugs]
        return "\n\n".join(parts)

    @tool
    def list_files(self) -> str:
        """Name the files of the repository and say how many lines each has."""
        return self._workspace.listing()

    @tool
    def read_file(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Read lines of a file, with their numbers.

        Args:
            path: from the top of the repository, such as tests/test_app.py
            start: the first line, from 1
            end: the last line; by default that of the file
        """
        return self._workspace.read(path, start, end)

    @tool
    def search(self, text: str) -> str:
        """Find the lines that hold a text, in all files.

        Args:
            text: what to look for, exactly as it is written
        """
        return self._workspace.search(text)

    @tool
    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a text that stands in a file exactly once.

        Args:
            path: from the top of the repository
            old: the text as it is, without line numbers; take in enough of it to be unique
            new: what takes its place
        """
        self._workspace.edit(path, old, new)
        return f"{path} is changed"

    @tool
    def write_file(self, path: str, content: str) -> str:
        """Make a file, or replace all that is in it.

        Args:
            path: from the top of the repository
            content: the whole text of the file
        """
        self._workspace.write(path, content)
        return f"{path} is written"

    @tool(max_output_chars=8_000)
    async def run_tests(self) -> str:
        """Run the tests of the repository; those that fail are shown with their tracebacks."""
        assert self.sandbox is not None
        return await run_visible_tests(self.sandbox, self._workspace.files)

    @reward
    async def fixed(self, task: Task) -> float:
        """1 if the hidden tests pass, and the visible ones as they were at first; 0 otherwise."""
        return float((await self._verdict(task)).fixed)

    @reward(weight=0.0)
    async def progress(self, task: Task) -> float:
        """Return the share of the hidden tests that pass, in [0, 1]; 0 where nothing was changed."""
        verdict = await self._verdict(task)
        return verdict.right / verdict.cases

    async def _verdict(self, task: Task) -> RepositoryVerdict:
        repository, bugs = _planted(task)
        files = self._workspace.files
        if files == repository.broken(bugs):
            return RepositoryVerdict(right=0, cases=len(repository.cases), visible_pass=False)
        if self._judged is None or self._judged[0] is not files:
            assert self.sandbox is not None
            self._judged = files, await judge_repository(self.sandbox, repository, files)
        return self._judged[1]

    def gold(self, task: Task) -> list[str]:
        """Return the right text of each file with a bug, a run of the tests, and the last word."""
        repository, bugs = _planted(task)
        paths = dict.fromkeys(bug.path for bug in bugs)
        mended = [_call("write_file", path=path, content=repository.files[path]) for path in paths]
        return [*mended, _call("run_tests"), _DONE]


def _chosen(names: Sequence[str] | None, split: str) -> tuple[Repository, ...]:
    """Return the repositories of a split, or those of them that are named."""
    known = {name: found for name, found in load_repositories().items() if found.split == split}
    if names is None:
        return tuple(known.values())
    for name in names:
        if name not in known:
            raise ConfigError(
                f"the split {split!r} has no repository {name!r}; it has {', '.join(known)}."
                f"{nearest(str(name), known)}"
            )
    if not names:
        raise ConfigError("repositories is empty; give at least one name, or None for all")
    return tuple(known[name] for name in names)


def _planted(task: Task) -> tuple[Repository, list[Bug]]:
    known = load_repositories()
    name, places = str(task["repository"]), list(task["bugs"])
    if name not in known:
        raise ConfigError(f"there is no repository {name!r}.{nearest(name, known)}")
    bugs = known[name].bugs
    if not places or not set(places) <= set(range(len(bugs))):
        raise ConfigError(f"the bugs of {name} are numbered 0 to {len(bugs) - 1}; got {places}")
    return known[name], [bugs[place] for place in places]


def _call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
