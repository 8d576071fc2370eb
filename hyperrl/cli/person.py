"""``hyperrl play``: a person in the terminal plays an environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hyperrl.cli.options import EnvArguments, parse_env_arguments
from hyperrl.errors import ConfigError, RunDirectoryError

if TYPE_CHECKING:
    from hyperrl.envs.outcome import Outcome
    from hyperrl.trajectory import RewardTerm
    from hyperrl.wiring.person import PersonEpisode

__all__ = ["play_env"]

_BLOCK = '"""'
_HELP = f"""\
A line is your answer to the environment. For several lines, write {_BLOCK} on a line before and after them.
  /tool NAME ARG=VALUE   call a tool; quote values with spaces, lists and objects are JSON; /tools lists them
  <tool_call>...         the same as a policy writes it
  /gold                  take the right action of this turn, where the environment knows it
  /help   /quit          (a line that begins with // is an answer that begins with /)"""


def play_env(
    env_id: Annotated[
        str, typer.Argument(metavar="ENV", help="An id of hyperrl envs, or its name: countdown.")
    ],
    task: Annotated[str | None, typer.Option(help="Position or id of the task; else one is drawn.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episode.")] = 0,
    env_arg: EnvArguments = None,
    save: Annotated[Path | None, typer.Option(help="Write the transcript to this JSON file.")] = None,
) -> None:
    """Play an environment yourself: read what a policy reads, answer, call tools, see the rewards.

    Answers may be piped in, a line each. /help says what can be typed.

    Example: hyperrl play hyperrl/GSM8K-v0 --task 3 --env-arg mode=calculator
    """
    from hyperrl.envs.registration import find_env_id, make_env
    from hyperrl.wiring.person import PersonEpisode
    from hyperrl.wiring.run_directory import refuse_unwritable

    if save is not None and save.exists():
        raise RunDirectoryError(f"{save} exists already; choose another file for the transcript")
    if save is not None:
        refuse_unwritable(save.parent)
    env_id = find_env_id(env_id)
    env = make_env(env_id, **parse_env_arguments(env_arg))
    chosen = int(task) if task is not None and task.lstrip("-").isdecimal() else task
    episode = PersonEpisode(env, task=chosen, seed=seed)
    terminal = _Terminal(episode)
    stopped = False
    try:
        terminal.run()
    except KeyboardInterrupt:
        stopped = True
    finally:
        if save is not None and episode.turns:
            save.parent.mkdir(parents=True, exist_ok=True)
            save.write_text(json.dumps(episode.transcript(env_id), indent=2) + "\n", encoding="utf-8")
        episode.close()
    terminal.conclude(save)
    if stopped:
        raise typer.Exit(130)


class _Terminal:
    """Reads lines, shows what comes back."""

    def __init__(self, episode: PersonEpisode) -> None:
        self._episode = episode
        self._console = Console(highlight=False, soft_wrap=True)
        self._asks = sys.stdin.isatty()
        self._terms_shown = 0

    def run(self) -> None:
        """Play until the episode ends or the person leaves."""
        self._show(str(self._episode.begin().observation), "cyan")
        self._list_tools()
        self._show(_HELP if self._asks else "", "dim")
        while not self._episode.ended and (text := self._read()) is not None:
            try:
                action = self._action(text)
            except ConfigError as error:
                self._show(str(error), "red")
                continue
            if action is not None:
                self._take(action)

    def conclude(self, save: Path | None) -> None:
        """Show the rewards, each with its cause where it has no score."""
        episode = self._episode
        if episode.cut:
            self._show(f"the turns are used up ({episode.actions}); scored as it stands", "dim")
        if not episode.ended:
            self._show("left before the end: nothing is scored", "dim")
        self._show_terms(episode.terms[self._terms_shown :] if episode.ended else ())
        if episode.ended:
            self._show(f"total reward: {'unscored' if episode.reward is None else f'{episode.reward:g}'}")
        if save is not None and save.exists():
            self._show(f"wrote {save}")

    def _take(self, action: str) -> None:
        outcome: Outcome = self._episode.act(action)
        if not self._episode.ended:
            self._show_terms(outcome.reward_terms)
        for record in outcome.tool_records:
            repairs = f", repaired: {', '.join(record.repairs)}" if record.repairs else ""
            self._show(f"tool {record.name}: {record.status}{repairs}", "yellow")
        self._show(str(outcome.observation), "cyan")

    def _show_terms(self, terms: Sequence[RewardTerm]) -> None:
        from hyperrl.wiring.person import cause_of

        self._terms_shown += len(terms)
        for term in terms:
            score = "unscored" if term.score is None else f"{term.score:g}"
            cause = cause_of(term)
            self._show(f"reward {term.name}: {score} x {term.weight:g}" + (f" ({cause})" if cause else ""))

    def _action(self, text: str) -> str | None:
        """Return the action that a typed text stands for, if it stands for one. Raises ConfigError."""
        from hyperrl.wiring.person import write_tool_call

        command, _, rest = text.partition(" ")
        if text.startswith("//"):
            return text[1:]
        if command == "/tool":
            return write_tool_call(rest, self._episode.env.tools)
        if command == "/gold":
            return self._gold()
        if command == "/tools":
            self._list_tools()
        elif command == "/help":
            self._show(_HELP)
        elif not text.startswith("/"):
            return text
        else:
            raise ConfigError(f"there is no {command}; /help lists what there is, // begins an answer with /")
        return None

    def _gold(self) -> str:
        gold = self._episode.next_gold()
        if gold is None:
            raise ConfigError("the environment knows no gold action for this turn")
        self._show(gold, "green")
        return gold

    def _list_tools(self) -> None:
        from hyperrl.wiring.person import describe_tool

        for tool in self._episode.env.tools:
            self._show(describe_tool(tool), "yellow")

    def _read(self) -> str | None:
        """Return what was typed; ``None`` to leave. Between two lines of quotes, many lines are one text."""
        line = self._line("> ")
        if line is None or line.strip() == "/quit":
            return None
        if line.strip() != _BLOCK:
            return line
        lines: list[str] = []
        while (line := self._line(". ")) is not None and line.strip() != _BLOCK:
            lines.append(line)
        return "\n".join(lines)

    def _line(self, prompt: str) -> str | None:
        if self._asks:
            try:
                return input(prompt)
            except EOFError:
                return None
        line = sys.stdin.readline()
        return line.removesuffix("\n").removesuffix("\r") if line else None

    def _show(self, text: str, style: str = "") -> None:
        if text:
            printable = text.encode("utf-8", "backslashreplace").decode("utf-8")
            self._console.print(printable, style=style or None, markup=False)
