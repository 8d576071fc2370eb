"""What can be said and asked about the entities of the generated world."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FILLERS", "INTRODUCTIONS", "KINDS", "RELATIONS", "Relation", "relations_of"]

KINDS = ("person", "town", "company", "river", "lake", "landmark", "work")
"""Kinds of entities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A fact that each entity of a kind has once.

    Attributes:
        name: names the relation.
        source: kind of the entity that has the fact.
        target: kind of the entity that the fact names, or ``value`` for a word or a number.
        sentences: ways to say it, with ``{x}`` for the entity and ``{y}`` for what it names.
        phrases: ways to call what it names, with ``{x}`` for the entity. Empty for values.
        questions: ways to ask for it.
    """

    name: str
    source: str
    target: str
    sentences: tuple[str, ...]
    phrases: tuple[str, ...] = ()
    questions: tuple[str, ...]


RELATIONS: tuple[Relation, ...] = (
    Relation(
        name="born_in",
        source="person",
        target="town",
        sentences=("{x} was born in {y}.", "{x} grew up in {y}, also the place of birth."),
        phrases=("the town where {x} was born", "the birthplace of {x}"),
        questions=("What is the birthplace of {x}?", "Which town is the birthplace of {x}?"),
    ),
    Relation(
        name="works_for",
        source="person",
        target="company",
        sentences=("{x} has worked for {y} for many years.", "{x} is employed by {y}."),
        phrases=("the company that employs {x}", "the employer of {x}"),
        questions=("Which company employs {x}?", "What is the name of the employer of {x}?"),
    ),
    Relation(
        name="born_year",
        source="person",
        target="value",
        sentences=(
            "The year of birth is {y}.",
            "{x} celebrates a birthday each spring, the first one in {y}.",
        ),
        questions=("What is the year of birth of {x}?", "Which year is the year of birth of {x}?"),
    ),
    Relation(
        name="instrument",
        source="person",
        target="value",
        sentences=("{x} plays the {y} in the evenings.", "{x} took up the {y} as a child."),
        questions=("Which instrument is played by {x}?", "What is the instrument of {x}?"),
    ),
    Relation(
        name="lies_on",
        source="town",
        target="river",
        sentences=("{x} lies on the banks of the {y}.", "The {y} runs through the middle of {x}."),
        phrases=("the river that runs through {x}", "the river of {x}"),
        questions=("Which river runs through {x}?", "On the banks of which river is {x}?"),
    ),
    Relation(
        name="mayor",
        source="town",
        target="person",
        sentences=("The mayor of {x} is {y}.", "{y} was elected mayor of {x}."),
        phrases=("the mayor of {x}", "the person who is mayor of {x}"),
        questions=("Who is the mayor of {x}?", "What is the name of the mayor of {x}?"),
    ),
    Relation(
        name="chartered",
        source="town",
        target="value",
        sentences=("{x} received its town charter in {y}.", "The town charter dates from {y}."),
        questions=(
            "In what year did {x} receive its town charter?",
            "From which year is the town charter of {x}?",
        ),
    ),
    Relation(
        name="based_in",
        source="company",
        target="town",
        sentences=("The headquarters of {x} are in {y}.", "{x} has its head office in {y}."),
        phrases=("the town where {x} has its head office", "the home town of {x}"),
        questions=("In which town are the headquarters of {x}?", "Where is the head office of {x}?"),
    ),
    Relation(
        name="founded_by",
        source="company",
        target="person",
        sentences=("{x} was founded by {y}.", "{y} founded {x} with borrowed money."),
        phrases=("the founder of {x}", "the person who founded {x}"),
        questions=("Who founded {x}?", "What is the name of the founder of {x}?"),
    ),
    Relation(
        name="makes",
        source="company",
        target="value",
        sentences=("Its main product is {y}.", "{x} sells mostly {y}."),
        questions=("What is the main product of {x}?", "What does {x} mostly sell?"),
    ),
    Relation(
        name="flows_into",
        source="river",
        target="lake",
        sentences=("{x} flows into {y}.", "{x} ends in {y}, where it forms a delta."),
        phrases=("the lake that {x} flows into", "the lake where {x} ends"),
        questions=("Which lake does {x} flow into?", "In which lake does {x} end?"),
    ),
    Relation(
        name="length",
        source="river",
        target="value",
        sentences=("{x} is {y} kilometres long.", "The length of {x} is {y} kilometres."),
        questions=("How many kilometres long is {x}?", "What is the length of {x} in kilometres?"),
    ),
    Relation(
        name="depth",
        source="lake",
        target="value",
        sentences=("The greatest depth of {x} is {y} metres.", "{x} is up to {y} metres deep."),
        questions=("How many metres deep is {x}?", "What is the greatest depth of {x} in metres?"),
    ),
    Relation(
        name="stands_in",
        source="landmark",
        target="town",
        sentences=("{x} stands in {y}.", "{x} is a sight of the town of {y}."),
        phrases=("the town where {x} stands", "the town of {x}"),
        questions=("In which town does {x} stand?", "Which town has {x} as a sight?"),
    ),
    Relation(
        name="designed_by",
        source="landmark",
        target="person",
        sentences=("{x} was designed by {y}.", "The plans of {x} were drawn by {y}."),
        phrases=("the designer of {x}", "the person who designed {x}"),
        questions=("Who designed {x}?", "Who drew the plans of {x}?"),
    ),
    Relation(
        name="written_by",
        source="work",
        target="person",
        sentences=("{x} was written by {y}.", "The author of {x} is {y}."),
        phrases=("the author of {x}", "the person who wrote {x}"),
        questions=("Who wrote {x}?", "What is the name of the author of {x}?"),
    ),
    Relation(
        name="set_in",
        source="work",
        target="town",
        sentences=("{x} is set in {y}.", "The plot takes place in {y}."),
        phrases=("the town in which {x} is set", "the town where the plot of {x} takes place"),
        questions=("In which town is {x} set?", "Where does the plot of {x} take place?"),
    ),
)
"""All relations."""

INTRODUCTIONS: dict[str, tuple[str, ...]] = {
    "person": ("{x} is a well-known citizen.", "{x} is a public figure.", "{x} is a person of many talents."),
    "town": ("{x} is a town.", "{x} is a market town.", "{x} is a small town with old walls."),
    "company": ("{x} is a company.", "{x} is a family business.", "{x} is a company with several plants."),
    "river": ("{x} is a river.", "{x} is a slow river.", "{x} is a river with many bends."),
    "lake": ("{x} is a lake.", "{x} is a mountain lake.", "{x} is a lake with clear water."),
    "landmark": ("{x} is a building.", "{x} is a building of red brick.", "{x} is a listed building."),
    "work": ("{x} is a novel.", "{x} is a novel in three parts.", "{x} is a novel that became a film."),
}
"""First sentences of paragraphs, by kind."""

FILLERS: dict[str, tuple[str, ...]] = {
    "person": (
        "Newspapers have called the career a lucky one.",
        "A portrait hangs in the town hall.",
        "Friends speak of long walks by the river and of a dry sense of humour.",
        "There have been talks about a book, but no author has been found.",
        "A prize for young designers bears the same name.",
    ),
    "town": (
        "The old bridge was rebuilt after a flood.",
        "Several companies have built plants near the station.",
        "The market is held twice a week.",
        "Its museum shows the tools of founders and glass makers.",
        "Visitors come for the lake nearby and for the music in summer.",
    ),
    "company": (
        "Most of its employees live in the town.",
        "The plants stand by the river for the sake of the water.",
        "It sponsors the local museum.",
        "A strike in its early years is still remembered.",
        "The mayor has praised it for training young people.",
    ),
    "river": (
        "Boats carry stone and timber on it.",
        "Its upper course is a nature reserve.",
        "Three towns draw their water from it.",
        "Floods have been recorded for centuries.",
        "Anglers know it for its trout.",
    ),
    "lake": (
        "A ferry crosses it in summer.",
        "Several rivers are said to feed it.",
        "Fishing is allowed on its western shore.",
        "Legends tell of a sunken town.",
        "In cold winters people skate on it.",
    ),
    "landmark": (
        "The roof was replaced after a storm.",
        "School classes visit it every autumn.",
        "It is closed on Mondays.",
        "A postcard of it sells better than any other.",
        "The mayor opened it with a short speech.",
    ),
    "work": (
        "Critics praised its quiet humour.",
        "It has been translated several times.",
        "A film company owns the rights.",
        "The manuscript is kept in a museum.",
        "Its last chapter has puzzled readers.",
    ),
}
"""Sentences without facts, by kind; they share words with questions."""


def relations_of(kind: str) -> tuple[Relation, ...]:
    """Return the relations that entities of a kind have."""
    return tuple(relation for relation in RELATIONS if relation.source == kind)
