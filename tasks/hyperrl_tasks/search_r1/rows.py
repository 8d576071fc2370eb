"""Questions of data sets, read from files in the layouts that are in use."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperrl.envs import ListTaskset, Task
from hyperrl.envs.search import Corpus, read_corpus
from hyperrl.errors import DataError
from hyperrl_tasks.splits import split_of

__all__ = ["QuestionFile", "load_questions"]

_CORPUS_NAME = "corpus.jsonl"
_QUESTION_NAMES = ("questions.json", "questions.jsonl", "questions.parquet")
_COLUMNS = (
    "_id",
    "id",
    "question",
    "prompt",
    "extra_info",
    "answer",
    "answers",
    "answer_aliases",
    "golden_answers",
    "reward_model",
    "context",
    "paragraphs",
    "supporting_facts",
    "question_decomposition",
)
_NEEDED = (
    "a question (question, extra_info.question or prompt) and its answer (answer, answers, golden_answers or"
    " reward_model.ground_truth)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFile:
    """The questions of a file.

    Attributes:
        tasks: rows with ``question``, ``answers`` (all right ones, the first is the gold one) and
            ``titles`` (of the paragraphs that support the answer, in order; empty if not known).
        corpus: the paragraphs that come with the questions; ``None`` if none do.
    """

    tasks: tuple[Task, ...]
    corpus: Corpus | None


def load_questions(
    path: str | Path, split: str, *, corpus: str | Path | None = None, divide: bool = True
) -> tuple[ListTaskset, Corpus]:
    """Return the questions of a split and the corpus to search for them.

    Args:
        path: a ``.json``, ``.jsonl`` or ``.parquet`` file, or a folder that holds ``questions`` with
            one of these endings. ``{split}`` in it stands for ``split``.
        split: ``train`` or ``test``.
        corpus: a JSON-lines file of paragraphs; ``{split}`` in it stands for ``split``. ``None`` takes
            ``corpus.jsonl`` of the folder if ``path`` is one and has it, else the paragraphs that come
            with the questions of the whole file.
        divide: without ``{split}`` in the path, one question in ten (by the CRC-32 of its text) is the
            split ``test``; ``False`` gives either split every question.

    Raises:
        DataError: a file is missing or unreadable, has no rows for the split, or lacks what is needed.
    """
    found, beside = _find(Path(str(path).replace("{split}", split)).expanduser())
    stat = found.stat()
    questions = _read_file(str(found.resolve()), stat.st_mtime_ns, stat.st_size)
    tasks = questions.tasks
    if divide and "{split}" not in str(path):
        tasks = tuple(task for task in tasks if split_of(task["question"]) == split)
    if not tasks:
        raise DataError(
            f"{str(found)!r} has no questions for the split {split!r}; divide=False takes all of them"
        )
    given = Path(str(corpus).replace("{split}", split)) if corpus is not None else beside
    if given is not None:
        return ListTaskset(tasks), read_corpus(given)
    if questions.corpus is None:
        raise DataError(
            f"the questions of {str(found)!r} come without paragraphs (context or paragraphs), so there is"
            " nothing to search; give corpus=, a JSON-lines file with title and text"
        )
    return ListTaskset(tasks), questions.corpus


def _find(path: Path) -> tuple[Path, Path | None]:
    """Return the file of questions, and the corpus beside it if ``path`` is a folder with one."""
    if path.is_dir():
        there = [path / name for name in _QUESTION_NAMES if (path / name).is_file()]
        if not there:
            raise DataError(f"the folder {str(path)!r} holds none of {', '.join(_QUESTION_NAMES)}")
        corpus = path / _CORPUS_NAME
        return there[0], corpus if corpus.is_file() else None
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}; give the path of a file or folder of questions")
    if path.suffix not in {".json", ".jsonl", ".parquet"}:
        raise DataError(f"{str(path)!r} must end in .json, .jsonl or .parquet")
    return path, None


@functools.lru_cache(maxsize=4)
def _read_file(path: str, mtime_ns: int, size: int) -> QuestionFile:
    del mtime_ns, size  # they only tell versions of the file apart
    rows = _parquet_rows(path) if path.endswith(".parquet") else _json_rows(path)
    tasks: list[Task] = []
    paragraphs: dict[tuple[str, str], None] = {}
    for number, row in enumerate(rows):
        where = f"row {number} of {path!r}"
        try:
            task = _read_row(row, number)
            paragraphs.update(dict.fromkeys(_paragraphs(row)))
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise DataError(f"{where} is not in a known layout: {error!r}; needed is {_NEEDED}") from error
        if task is None:
            raise DataError(f"{where} lacks {_NEEDED}, found were {_found(row)}")
        tasks.append(task)
    if not tasks:
        raise DataError(f"{path!r} holds no rows")
    return QuestionFile(tasks=tuple(tasks), corpus=Corpus(paragraphs) if paragraphs else None)


def _json_rows(path: str) -> list[Any]:
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        if path.endswith(".jsonl"):
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        rows = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path!r} is not JSON in UTF-8: {error}") from error
    rows = rows.get("data") if isinstance(rows, dict) else rows
    if not isinstance(rows, list):
        raise DataError(f"{path!r} must hold a list of questions, or an object with such a list as data")
    return rows


def _parquet_rows(path: str) -> list[Any]:
    import pyarrow as pa  # noqa: PLC0415  # heavy, and needed for Parquet only
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = [name for name in names if name in _COLUMNS]
            # No threads: a process forked later must not wait for a pool that stayed behind.
            rows: list[Any] = file.read(columns=wanted, use_threads=False).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path!r} cannot be read as Parquet: {error}") from error
    if not wanted:
        raise DataError(f"{path!r} lacks the columns of {_NEEDED}; found were {names}")
    return rows


def _found(row: object) -> list[str] | str:
    return sorted(str(name) for name in row) if isinstance(row, Mapping) else type(row).__name__


def _read_row(row: Mapping[str, Any], number: int) -> Task | None:
    question, answers = _question(row), _answers(row)
    if not question or not answers:
        return None
    name = row.get("_id") or row.get("id") or number
    return Task(str(name), {"question": question, "answers": answers, "titles": _support(row)})


def _question(row: Mapping[str, Any]) -> str:
    """Return the plain question where a row keeps it, else what stands in the prompt behind ``Question:``."""
    plain = row.get("question") or (row.get("extra_info") or {}).get("question")
    if plain:
        return str(plain).strip()
    prompt = row.get("prompt") or ""
    text = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
    return text.rpartition("Question:")[2].strip()


def _answers(row: Mapping[str, Any]) -> list[str]:
    given: list[object] = []
    for name in ("answer", "answers", "golden_answers", "answer_aliases"):
        given += _as_list(row.get(name))
    if not given:
        truth = (row.get("reward_model") or {}).get("ground_truth")
        given = _as_list(truth.get("target") if isinstance(truth, Mapping) else truth)
    return list(dict.fromkeys(text for text in (str(one).strip() for one in given) if text))


def _as_list(value: object) -> list[object]:
    if value is None:
        return []
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)) else [value]


def _paragraphs(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the paragraphs of a row: ``context`` as HotpotQA has it, or ``paragraphs`` as MuSiQue does."""
    if row.get("paragraphs"):
        return [(str(p["title"]), str(p.get("paragraph_text") or p["text"])) for p in row["paragraphs"]]
    context = row.get("context") or ()
    if isinstance(context, Mapping):
        context = zip(context["title"], context["sentences"], strict=True)
    return [(str(title), _join(sentences)) for title, sentences in context]


def _join(sentences: str | Sequence[str]) -> str:
    return sentences if isinstance(sentences, str) else " ".join(one.strip() for one in sentences)


def _support(row: Mapping[str, Any]) -> list[str]:
    """Return the titles of the paragraphs that a row names as support, in its order, each once."""
    paragraphs = row.get("paragraphs") or ()
    facts = row.get("supporting_facts") or ()
    if row.get("question_decomposition"):
        steps = [step.get("paragraph_support_idx") for step in row["question_decomposition"]]
        titles = [paragraphs[step]["title"] for step in steps if step is not None]
    elif isinstance(facts, Mapping):
        titles = list(facts["title"])
    elif facts:
        titles = [fact[0] for fact in facts]
    else:
        titles = [one["title"] for one in paragraphs if one.get("is_supporting")]
    return list(dict.fromkeys(map(str, titles)))
