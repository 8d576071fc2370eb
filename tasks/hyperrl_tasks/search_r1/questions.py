"""Questions over the generated world that take a given number of searches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from hyperrl.envs import ListTaskset, Task
from hyperrl_tasks.search_r1.names import pick
from hyperrl_tasks.search_r1.relations import Relation, relations_of
from hyperrl_tasks.search_r1.world import Entity, make_world

__all__ = ["MAX_HOPS", "answer_spellings", "make_questions"]

MAX_HOPS = 3
"""The most paragraphs that a question needs."""

_PER_ENTITY = 4


@lru_cache(maxsize=8)
def make_questions(seed: int, split: str, hops: int, namesakes: int) -> ListTaskset:
    """Return the questions of a split, at most four that start at the same entity.

    A question follows ``hops`` relations from an entity that it names. It names no entity in between,
    and its answer stands in none of the paragraphs before the last one, nor in one about a namesake of
    the entity that it starts from.

    Args:
        seed: names the world.
        split: ``train`` or ``test``; no entity has questions in both, nor is it an answer in both.
        hops: how many paragraphs it takes to answer, 1 to :data:`MAX_HOPS`.
        namesakes: as for :func:`make_world`.
    """
    rng = random.Random(f"hyperrl search questions {seed} {split} {hops}")
    entities = [one for one in make_world(seed, namesakes).entities if one.split == split]
    rows = [row for entity in entities for row in _questions_about(entity, hops, rng)]
    rows.sort(key=lambda _: rng.random())
    return ListTaskset([Task(f"{seed}-{hops}-{number}", row) for number, row in enumerate(rows)])


def answer_spellings(answer: Entity | str) -> list[str]:
    """Return the right answers: the name first, then how else it may be said."""
    if isinstance(answer, str):
        return [answer]
    first, _, rest = answer.name.partition(" ")
    return (
        [answer.name, rest]
        if answer.kind in {"river", "lake"} and first in {"River", "Lake"}
        else [answer.name]
    )


def _questions_about(entity: Entity, hops: int, rng: random.Random) -> list[dict[str, Any]]:
    paths = sorted(_paths(entity.kind, hops), key=lambda _: rng.random())
    found = (_make_question(entity, path, rng) for path in paths)
    return [question for question in found if question is not None][:_PER_ENTITY]


def _paths(kind: str, hops: int) -> Iterator[tuple[Relation, ...]]:
    for relation in relations_of(kind):
        if hops == 1:
            yield (relation,)
        elif relation.target != "value":
            yield from ((relation, *rest) for rest in _paths(relation.target, hops - 1))


def _make_question(start: Entity, path: Sequence[Relation], rng: random.Random) -> dict[str, Any] | None:
    chain, asked = [start], start.name
    for relation in path[:-1]:
        fact = chain[-1].facts[relation.name]
        if isinstance(fact, str):
            raise TypeError(f"{relation.name} names a value, which has no facts of its own")
        asked = pick(rng, relation.phrases).format(x=asked)
        chain.append(fact)
    answer = chain[-1].facts[path[-1].name]
    question = pick(rng, path[-1].questions).format(x=asked)
    answers = answer_spellings(answer)
    if not _is_sound(question, chain, answers[-1]) or answer in chain:
        return None
    return {"question": question, "answers": answers, "titles": [entity.name for entity in chain]}


def _is_sound(question: str, chain: Sequence[Entity], answer: str) -> bool:
    """Whether every paragraph of the chain is needed, and nothing gives the answer away before the last."""
    asked = question.casefold()
    bridges = [entity.name.casefold() for entity in chain[1:]]
    early = [*chain[:-1], *(chain[0].namesakes if len(chain) > 1 else ())]
    told = " ".join(entity.text for entity in early).casefold()
    answer = answer.casefold()
    return (
        len(set(chain)) == len(chain) and answer not in asked + told and not any(b in asked for b in bridges)
    )
