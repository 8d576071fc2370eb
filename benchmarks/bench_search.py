"""CPU time of search engines over the same words: building an index, and queries of several words.

    python benchmarks/bench_search.py [--paragraphs 10000] [--json]

The paragraphs are those of the generated world of SearchR1, over and over with other names; the queries
are its questions. bm25s is measured beside ours where it is installed, with its own tokenizer. All run on
one thread; figures are CPU seconds and microseconds of this process. The last line is JSON with ``--json``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable

from hyperrl.envs.search import Corpus, open_index
from hyperrl_tasks.search_r1.questions import make_questions
from hyperrl_tasks.search_r1.world import make_world

QUERIES = 300
TOP_K = 3


def make_corpus(size: int) -> Corpus:
    pairs: list[tuple[str, str]] = []
    seed = 0
    while len(pairs) < size:
        world = make_world(seed, 1).corpus
        pairs += zip(world.titles, world.texts, strict=True)
        seed += 1
    return Corpus(pairs[:size])


def timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure_ours(engine: str, corpus: Corpus, queries: list[str]) -> dict[str, float]:
    began = time.process_time()
    with open_index(corpus, engine) as index:
        index_s = time.process_time() - began
        index.search("warm up")
        spent = [timed(lambda query=query: index.search(query, top_k=TOP_K)) for query in queries]
    return figures(index_s, spent)


def measure_bm25s(corpus: Corpus, queries: list[str]) -> dict[str, float]:
    import bm25s  # noqa: PLC0415  # a peer that may be missing

    texts = [f"{title} {text}" for title, text in zip(corpus.titles, corpus.texts, strict=True)]
    retriever = bm25s.BM25()

    def build() -> None:
        retriever.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)

    def ask(query: str) -> None:
        tokens = bm25s.tokenize(query, stopwords="en", show_progress=False)
        retriever.retrieve(tokens, k=TOP_K, show_progress=False, n_threads=1)

    index_s = timed(build)
    return figures(index_s, [timed(lambda query=query: ask(query)) for query in queries])


def figures(index_s: float, spent: list[float]) -> dict[str, float]:
    ordered = sorted(spent)
    return {
        "index_s": round(index_s, 3),
        "query_us": round(statistics.median(spent) * 1e6, 1),
        "query_p99_us": round(ordered[int(len(ordered) * 0.99)] * 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paragraphs", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    corpus = make_corpus(arguments.paragraphs)
    rows = make_questions(0, "train", 2, 1)
    queries = [rows[number]["question"] for number in range(QUERIES)]
    found = {"fts5": measure_ours("fts5", corpus, queries)}
    if importlib.util.find_spec("tantivy") is not None:
        found["tantivy"] = measure_ours("tantivy", corpus, queries)
    if importlib.util.find_spec("bm25s") is not None:
        found["bm25s"] = measure_bm25s(corpus, queries)
    print(f"{len(corpus):,} paragraphs, {QUERIES} questions of two hops, top {TOP_K}")
    print(f"{'engine':10} {'index s':>10} {'query us':>10} {'p99 us':>10}")
    for engine, row in found.items():
        print(f"{engine:10} {row['index_s']:10.3f} {row['query_us']:10.1f} {row['query_p99_us']:10.1f}")
    if arguments.json:
        print(json.dumps({"paragraphs": len(corpus), **found}))


if __name__ == "__main__":
    main()
