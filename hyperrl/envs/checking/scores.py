"""Whether rewards are earned: gold scores, and nothing that is no answer does."""

from __future__ import annotations

import math
import time

from hyperrl.envs.checking.findings import FailedError, SkippedError
from hyperrl.envs.checking.plays import TOLERANCE, Played, Plays, others
from hyperrl.envs.checking.texts import Attack, general_attacks, task_attacks
from hyperrl.envs.messages import message_text

__all__ = ["check_attacks", "check_empty", "check_gold", "check_leak", "check_wrong"]

_SHORT_GOLD = 3
_CONFIRMED_ON = 3
_OTHERS_NAMED = 5
_ATTACKED_TURNS = 4
_ATTACKING_S = 10.0
_CRASHED = ("reward_error", "reward_not_finite", "reward_too_large")
"""Kinds of unscored terms that are faults of the reward itself; others say that nobody could tell."""


def check_gold(plays: Plays) -> str:
    """Look whether the gold actions reach the declared score."""
    wanted = plays.env.gold_score
    for index in plays.tasks:
        _, actions = plays.gold(index)
        played = plays.go_on(actions)
        last = actions[-1] if actions else ""
        if not played.ended:
            raise FailedError(
                f"task {index}: the episode goes on after {len(actions)} action(s), the last {last!r:.80}"
            )
        if not abs(played.score - wanted) <= TOLERANCE:
            raise FailedError(f"task {index}: gold {last!r:.80} scores {_said(played)}, not {wanted:g}")
    return f"{len(plays.tasks)} tasks score {wanted:g}"


def check_empty(plays: Plays) -> str:
    """Look whether empty answers stay at or under the floor."""
    worst = -math.inf
    for index in plays.tasks:
        played = plays.repeat(index, "")
        if not played.score <= plays.env.floor + TOLERANCE:
            raise FailedError(
                f"task {index}: empty answers score {_said(played)}, the floor is {plays.env.floor:g}"
            )
        worst = max(worst, played.score)
    return f"at most {worst:g}"


def check_wrong(plays: Plays) -> str:
    """Look whether the gold of other tasks stays at or under the floor.

    Tasks may have the same answer, so one in two may score.
    """
    if len(plays.tasks) < 2:
        raise SkippedError("there is one task only")
    golds = {index: plays.gold(index)[1] for index in plays.tasks}
    pairs = [(i, other) for i in plays.tasks for other in others(plays, i, 1) if golds[i] != golds[other]]
    if not pairs:
        raise SkippedError("all tasks have the same gold")
    above = [(i, other, played) for i, other in pairs if _above(plays, played := plays.play(i, golds[other]))]
    if 2 * len(above) > len(pairs):
        i, other, played = above[0]
        raise FailedError(
            f"task {i}: the gold of task {other} scores {_said(played)}, the floor is {plays.env.floor:g};"
            f" so it is for {len(above)} of {len(pairs)} tasks"
        )
    return f"{len(pairs) - len(above)} of {len(pairs)} tasks refuse another's gold"


def check_attacks(plays: Plays) -> str:
    """Look whether texts that are no answer to any task stay at or under the floor.

    One that scores is tried on three more tasks, since it may be right by chance: it is a finding where
    half of them score. Where episodes take long, time may be up before all were tried.
    """
    attacks = _attacks(plays)
    start, tried, unscored = time.perf_counter(), 0, 0
    for name, texts in attacks.items():
        unscored += _attack(plays, name, texts)
        tried += 1
        if time.perf_counter() - start > _ATTACKING_S:
            break
    of = "" if tried == len(attacks) else f" of {len(attacks)}, then time was up"
    return f"{tried} texts{of}" + (f", {unscored} unscored" if unscored else "")


def check_leak(plays: Plays) -> str:
    """Look whether the gold answer stands in the first observation.

    Where all tasks end with the same words, such as ``done``, those say nothing of the answer.
    """
    if plays.env.shows_answer:
        raise SkippedError("shows_answer: the observation is meant to hold the answer")
    shown = []
    for index in plays.tasks:
        observation, actions = plays.gold(index)
        shown.append((actions[-1].strip(), observation))
    if len(shown) > 1 and len({last for last, _ in shown}) == 1:
        return f"{len(shown)} tasks, all with the same last gold"
    for index, (last, observation) in zip(plays.tasks, shown, strict=True):
        if len(last) > _SHORT_GOLD and last in observation:
            raise FailedError(
                f"task {index}: the gold answer {last!r:.80} stands in the observation; where that is meant,"
                " as with a list of choices or a passage to quote from, set shows_answer = True in the class"
            )
    return f"{len(shown)} tasks"


def _attacks(plays: Plays) -> dict[str, dict[int, str]]:
    """Return for each attack its text by task: those that are made from tasks, and the general ones."""
    tasks = list(plays.tasks)
    found: dict[str, dict[int, str]] = {}
    for index in tasks[: 1 + _CONFIRMED_ON]:
        for attack in _made_from(plays, index):
            found.setdefault(attack.name, {})[index] = attack.text
    plays.env.reset(seed=tasks[0], options={"task": tasks[0]})
    for place, attack in enumerate(general_attacks(plays.env.tools)):
        first = place % len(tasks)
        found[attack.name] = dict.fromkeys((tasks[first:] + tasks[:first])[: 1 + _CONFIRMED_ON], attack.text)
    return found


def _attack(plays: Plays, name: str, texts: dict[int, str]) -> bool:
    """Try an attack on the first task, and on the others if it scores; return whether it was unscored."""
    (index, text), *more = texts.items()
    played = _attacked(plays, name, index, text)
    if not _above(plays, played):
        return math.isnan(played.score)
    again = [_above(plays, _attacked(plays, name, other, text)) for other, text in more]
    if 2 * (1 + sum(again)) >= 1 + len(again):
        raise FailedError(
            f"task {index}: {name} ({text!r:.60}) scores {_said(played)}, the floor is {plays.env.floor:g}"
        )
    return False


def _attacked(plays: Plays, name: str, index: int, text: str) -> Played:
    played = plays.repeat(index, text, _ATTACKED_TURNS)
    crashed = [f"{term}: {why}" for term, why in played.why.items() if why.startswith(_CRASHED)]
    if crashed:
        raise FailedError(f"task {index}: {name} ({text!r:.60}) breaks the reward {crashed[0]}")
    return played


def _made_from(plays: Plays, index: int) -> list[Attack]:
    try:
        wrong = [plays.gold(other)[1][-1] for other in others(plays, index, _OTHERS_NAMED)]
        observation, actions = plays.gold(index)
        gold = actions[-1]
    except SkippedError:
        observation, _ = plays.env.reset(seed=index, options={"task": index})
        gold, wrong = "", []
    system = [message_text(m) for m in observation.messages if m["role"] == "system"]
    return task_attacks(str(observation), "\n".join(system), gold, wrong)


def _above(plays: Plays, played: Played) -> bool:
    return played.score > plays.env.floor + TOLERANCE


def _said(played: Played) -> str:
    causes = "; ".join(f"{name}: {why}" if name else why for name, why in played.why.items())
    return f"{played.score:g}" + (f" ({causes})" if causes else "")
