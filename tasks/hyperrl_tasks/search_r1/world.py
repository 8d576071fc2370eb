"""A generated world: fictional people, towns, companies, rivers, and a paragraph about each."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hyperrl.envs.search import Corpus
from hyperrl_tasks.search_r1.names import NameGiver, pick
from hyperrl_tasks.search_r1.relations import FILLERS, INTRODUCTIONS, KINDS, Relation, relations_of
from hyperrl_tasks.search_r1.vocabulary import INSTRUMENTS, PRODUCTS
from hyperrl_tasks.splits import split_of

__all__ = ["MAX_NAMESAKES", "Entity", "World", "make_world"]

MAX_NAMESAKES = 4
"""The most paragraphs about namesakes for each entity."""

_COUNTS = {
    "person": 640,
    "town": 360,
    "company": 280,
    "river": 220,
    "lake": 120,
    "landmark": 280,
    "work": 300,
}


@dataclass(slots=True, kw_only=True, eq=False)
class Entity:
    """Someone or something that has a paragraph.

    Attributes:
        name: its name, the title of the paragraph.
        kind: one of :data:`KINDS`.
        split: where questions about it belong.
        facts: what it is related to, by relation: an entity, or a value.
        text: its paragraph.
        namesakes: entities that share words of its name; no question is about them.
    """

    name: str
    kind: str
    split: str
    facts: dict[str, Entity | str] = field(default_factory=dict)
    text: str = ""
    namesakes: list[Entity] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Entities and the corpus of their paragraphs.

    Attributes:
        entities: those that questions are about.
        corpus: a paragraph for each of them and for their namesakes, in an order that says nothing.
    """

    entities: tuple[Entity, ...]
    corpus: Corpus


@lru_cache(maxsize=4)
def make_world(seed: int, namesakes: int) -> World:
    """Return a world; the same for the same arguments in every process.

    Facts relate entities of one split only, so the splits share no entity, not even as an answer.

    Args:
        seed: names the world.
        namesakes: paragraphs about namesakes for each entity, 0 to :data:`MAX_NAMESAKES`. The entities
            and what is said about them do not depend on it.
    """
    rng = random.Random(f"hyperrl search world {seed}")
    giver = NameGiver(rng)
    entities = [_new_entity(giver.name(kind), kind) for kind in KINDS for _ in range(_COUNTS[kind])]
    pools: dict[tuple[str, str], list[Entity]] = defaultdict(list)
    for entity in entities:
        pools[entity.kind, entity.split].append(entity)
    for entity in entities:
        _describe(entity, pools, rng)
    others = random.Random(f"hyperrl search namesakes {seed}")
    for entity in entities * namesakes:
        _add_namesake(entity, giver, pools, others)
    described = [*entities, *(other for entity in entities for other in entity.namesakes)]
    order = sorted(described, key=lambda one: _scramble(seed, one.name))
    return World(entities=tuple(entities), corpus=Corpus((one.name, one.text) for one in order))


def _new_entity(name: str, kind: str) -> Entity:
    return Entity(name=name, kind=kind, split=split_of(name))


def _scramble(seed: int, name: str) -> float:
    return random.Random(f"{seed} {name}").random()


def _add_namesake(
    entity: Entity, giver: NameGiver, pools: Mapping[tuple[str, str], Sequence[Entity]], rng: random.Random
) -> None:
    other = Entity(name=giver.namesake(entity.kind, entity.name), kind=entity.kind, split=entity.split)
    _describe(other, pools, rng)
    entity.namesakes.append(other)


def _describe(entity: Entity, pools: Mapping[tuple[str, str], Sequence[Entity]], rng: random.Random) -> None:
    sentences = []
    for relation in relations_of(entity.kind):
        fact = _draw_fact(relation, entity, pools, rng)
        entity.facts[relation.name] = fact
        named = fact if isinstance(fact, str) else fact.name
        sentences.append(pick(rng, relation.sentences).format(x=_subject(entity, rng), y=named))
    sentences += dict.fromkeys(pick(rng, FILLERS[entity.kind]) for _ in range(2))
    sentences.sort(key=lambda _: rng.random())
    first = pick(rng, INTRODUCTIONS[entity.kind]).format(x=entity.name)
    entity.text = " ".join([first, *(sentence[0].upper() + sentence[1:] for sentence in sentences)])


def _subject(entity: Entity, rng: random.Random) -> str:
    """Return the name, or in half of all sentences words that stand for it."""
    if entity.kind == "person" or rng.random() < 0.5:
        return entity.name
    return {"landmark": "the building", "work": "the novel"}.get(entity.kind, f"the {entity.kind}")


def _draw_fact(
    relation: Relation,
    entity: Entity,
    pools: Mapping[tuple[str, str], Sequence[Entity]],
    rng: random.Random,
) -> Entity | str:
    if relation.target == "value":
        return _draw_value(relation.name, rng)
    return pick(rng, pools[relation.target, entity.split])


def _draw_value(relation: str, rng: random.Random) -> str:
    words = {"instrument": INSTRUMENTS, "makes": PRODUCTS}
    if relation in words:
        return pick(rng, words[relation])
    low, high = {
        "born_year": (1921, 1999),
        "chartered": (1090, 1790),
        "length": (31, 940),
        "depth": (11, 410),
    }[relation]
    return str(low + int(rng.random() * (high - low)))
