"""The environment ``hyperrl/SearchR1-v0``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

from hyperrl.envs import ListTaskset, Score, Task, TextEnv, reward, tool
from hyperrl.envs.grading import QaVerdict, grade_qa
from hyperrl.envs.search import Corpus, EngineName, asearch, make_snippet
from hyperrl.errors import ConfigError, nearest
from hyperrl_tasks.search_r1.answers import AnswerFormat, read_answer
from hyperrl_tasks.search_r1.questions import MAX_HOPS, make_questions
from hyperrl_tasks.search_r1.rows import load_questions
from hyperrl_tasks.search_r1.world import MAX_NAMESAKES, make_world

__all__ = ["SearchR1"]

_MOST_GOLD_SEARCHES = 6
_WORLD_OPTIONS = {"hops": 2, "distractors": 1, "world_seed": 0}


class SearchR1(TextEnv):
    """Answer a question that takes several searches of a local corpus.

    Args:
        hops: how many paragraphs it takes to answer, 1 to 3. Generated questions only.
        distractors: paragraphs about namesakes for each one that questions are about, 0 to 4; the
            corpus has 2,200 paragraphs times one more than this. Generated questions only.
        top_k: how many paragraphs a search shows, 1 to 20; fewer are harder.
        snippet_chars: how much of a paragraph is shown, 80 to 10,000 characters; less is harder.
        engine: ``tantivy``, ``fts5``, or ``auto``: tantivy where it is installed.
        path: a file or folder of questions; see :func:`load_questions`. ``None`` generates them.
        corpus: the paragraphs to search, for ``path``; by default those that come with the questions.
        divide: ``path`` without ``{split}`` is divided between the splits, instead of serving both.
        answer_format: ``tag``: the answer stands in ``<answer>...</answer>``; ``line``: without the
            tag, the last line is the answer.
        f1_weight: weight of the term ``f1``, the overlap of words with the closest right answer.
        format_weight: weight of the term ``format``: there is an answer where it belongs.
        search_weight: weight of the term ``searched``: a search found something.
        world_seed: names the generated world.
        **kwargs: ``split`` and ``render_mode`` of :class:`~hyperrl.envs.TextEnv`.

    Raises:
        ConfigError: an argument is out of range, or does not go with another.
        DataError: a file is missing or lacks what is needed.
        MissingExtraError: the engine is not installed.
    """

    version = "1"

    def __init__(  # noqa: PLR0913  # each is an option by keyword
        self,
        *,
        hops: int = 2,
        distractors: int = 1,
        top_k: int = 3,
        snippet_chars: int = 1_000,
        engine: EngineName = "auto",
        path: str | Path | None = None,
        corpus: str | Path | None = None,
        divide: bool = True,
        answer_format: AnswerFormat = "tag",
        f1_weight: float = 0.0,
        format_weight: float = 0.0,
        search_weight: float = 0.0,
        world_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check_range("hops", hops, 1, MAX_HOPS)
        _check_range("distractors", distractors, 0, MAX_NAMESAKES)
        _check_range("top_k", top_k, 1, 20)
        _check_range("snippet_chars", snippet_chars, 80, 10_000)
        _check_choice("answer_format", answer_format, get_args(AnswerFormat))
        _check_choice("engine", engine, get_args(EngineName))
        _check_source(path, corpus, {"hops": hops, "distractors": distractors, "world_seed": world_seed})
        weights = {"f1": f1_weight, "format": format_weight, "searched": search_weight}
        for name, weight in weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ConfigError(f"the weight of {name} must be finite and at least 0, got {weight}")
        self.hops, self.distractors, self.world_seed = hops, distractors, world_seed
        self.top_k, self.snippet_chars, self.engine = top_k, snippet_chars, engine
        self.path, self.corpus_path, self.divide = path, corpus, divide
        self.answer_format = answer_format
        self.reward_weights = {name: float(weight) for name, weight in weights.items()}
        self.system_prompt = _rules(answer_format)
        self._found = False
        self._corpus: Corpus | None = self._load()[1]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the corpus out: it is read or made again, once for a process."""
        return {**super().__getstate__(), "_corpus": None}

    def _load(self) -> tuple[ListTaskset, Corpus]:
        """Return questions and corpus; files and worlds are kept for a while, so that it is quick again."""
        if self.path is not None:
            return load_questions(self.path, self.split, corpus=self.corpus_path, divide=self.divide)
        questions = make_questions(self.world_seed, self.split, self.hops, self.distractors)
        return questions, make_world(self.world_seed, self.distractors).corpus

    @property
    def corpus(self) -> Corpus:
        """The paragraphs that are searched."""
        if self._corpus is None:
            self._corpus = self._load()[1]
        return self._corpus

    def tasks(self) -> ListTaskset:
        """The questions of the split, with ``question``, ``answers`` and ``titles`` of gold paragraphs."""
        return self._load()[0]

    def start(self, task: Task) -> str:
        """Ask the question."""
        self._found = False
        return f"Question: {task['question']}"

    @tool(max_output_chars=100_000, max_input_chars=20_000)
    async def search(self, query: str) -> str:
        """Search the corpus for paragraphs that share words with the query, best first.

        Args:
            query: what to look for, such as the name of a person or a place.
        """
        hits = await asearch(self.corpus, query, top_k=self.top_k, engine=self.engine)
        if not hits:
            return "Nothing was found. Search for other words."
        self._found = True
        shown = [make_snippet(hit.text, query, self.snippet_chars) for hit in hits]
        numbered = enumerate(zip(hits, shown, strict=True), start=1)
        return "\n\n".join(f"[{number}] {hit.title}\n{text}" for number, (hit, text) in numbered)

    @reward
    def correct(self, task: Task, answer: str) -> Score:
        """1 if the answer is a right one after SQuAD's normalisation, 0 otherwise."""
        verdict = self._judge(task, answer)
        return Score(0.0, cause="unparsed") if verdict is None else Score(float(verdict.exact))

    @reward(weight=0.0)
    def f1(self, task: Task, answer: str) -> float:
        """Return the overlap of words with the closest right answer, in [0, 1]."""
        verdict = self._judge(task, answer)
        return 0.0 if verdict is None else verdict.f1

    @reward(name="format", weight=0.0)
    def has_answer(self, answer: str) -> float:
        """1 if there is an answer where it belongs, whatever it says; 0 if none could be read."""
        return float(read_answer(answer, self.answer_format) is not None)

    @reward(weight=0.0)
    def searched(self) -> float:
        """1 if a search found something, 0 otherwise."""
        return float(self._found)

    def _judge(self, task: Task, answer: str) -> QaVerdict | None:
        given = read_answer(answer, self.answer_format)
        return None if given is None else grade_qa(given, task["answers"])

    def gold(self, task: Task) -> list[str]:
        """Return a search for the title of each gold paragraph (or for the question), then the answer."""
        wanted = list(task.get("titles") or [task["question"]])[:_MOST_GOLD_SEARCHES]
        return [*map(_call, wanted), f"<answer>{task['answers'][0]}</answer>"]


def _call(query: str) -> str:
    call = {"name": "search", "arguments": {"query": query}}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


def _rules(answer_format: AnswerFormat) -> str:
    where = "inside <answer> and </answer>" if answer_format == "tag" else "alone on the last line"
    return (
        "Answer the question with what you find in the corpus. Call the search tool as often as you need; it"
        " often takes one search for each name that you come upon. When you know the answer, give it"
        f" {where}, in as few words as possible: a name, a number, yes or no."
    )


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} must be from {least} to {most}, got {value}")


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(
            f"{name} must be one of {', '.join(known)}, got {value!r}.{nearest(str(value), known)}"
        )


def _check_source(path: object, corpus: object, world: dict[str, int]) -> None:
    if path is None and corpus is not None:
        raise ConfigError("corpus needs path: generated questions are about a generated corpus")
    if path is not None and world != _WORLD_OPTIONS:
        changed = [name for name, value in world.items() if value != _WORLD_OPTIONS[name]]
        raise ConfigError(f"{', '.join(changed)} shape generated questions and do not go with path")
