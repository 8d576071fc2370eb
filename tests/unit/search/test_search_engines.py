"""Search: both engines give what was asked for, in a fixed order, whatever the query is."""

import asyncio
import importlib.util
import json
import multiprocessing
import pickle
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.envs.search import (
    MAX_QUERY_WORDS,
    Corpus,
    asearch,
    close_indexes,
    make_snippet,
    open_index,
    query_words,
    read_corpus,
    shared_index,
)
from hyperrl.errors import ConfigError, DataError, EnvError, MissingExtraError

PARAGRAPHS = [
    ("Rudy Giuliani", "Rudy Giuliani was the mayor of New York City."),
    ("Scott Howell", "Scott Howell worked with Rudy Giuliani and others."),
    ("Zürich", "Zürich is a city on the river Limmat; people speak of the Zürcher."),
    ("東京", "東京は日本の首都です。"),
    ("Operators", "or near to in title text NOT OR NEAR"),
    ("", "a paragraph without a title, about rivers and their flooding"),
    ("Empty", ""),
]
QUERIES = [
    "", " ", "a AND", '"unclosed', "foo:bar", "(((", "what's 50% of title:x?", "NOT", "*", " OR ",
    "-a", "^a", "+",
    "NEAR(a b)", "{a b} : c", "title:", "a\x00b", "\ud800", "\udfff\ud800x", "'; DROP TABLE p; --",
    "IN [a b]",
    "a TO b", "/.*/", "a~2", "a^9", "\\", '""', '"" OR ""', "\u202eabc",
    "a\u0301" * 50, "🜁🜂", "٣٤", "ǅ ß İ ﬁ",
    "Ⅷ ² ½ ①", "ʻokina", "_x_", "word'or\"", "x" * 100_000,
    "a " * 50_000, "(" * 10_000, '"' * 9_999, "漢" * 5_000,
    " ".join(f"w{i}" for i in range(5_000)),
]  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            "tantivy",
            marks=pytest.mark.skipif(
                importlib.util.find_spec("tantivy") is None, reason="tantivy is not installed"
            ),
        ),
        "fts5",
    ],
)
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def index(engine):
    with open_index(Corpus(PARAGRAPHS), engine) as opened:
        yield opened


def found(index, query, top_k=3):
    return [hit.title for hit in index.search(query, top_k=top_k)]


def test_the_best_paragraph_comes_first(index, engine):
    assert index.engine == engine
    assert found(index, "Who is Rudy Giuliani?") == ["Rudy Giuliani", "Scott Howell"]
    assert found(index, "scott HOWELL", top_k=1) == ["Scott Howell"]
    [hit] = index.search("Limmat")
    assert (hit.position, hit.title, hit.text) == (2, *PARAGRAPHS[2])
    assert hit.score > 0


def test_accents_word_forms_and_ideographs_are_found(index):
    assert found(index, "zurich") == found(index, "ZU\u0308RICH") == ["Zürich"]
    assert found(index, "the river floods")[0] == ""
    assert found(index, "首都") == ["東京"]


def test_operators_are_words(index):
    assert found(index, "NOT") == ["Operators"]
    both = {"Scott Howell", "Rudy Giuliani"}
    assert set(found(index, "(giuliani AND NOT howell")) >= both


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: repr(query[:12]))
def test_no_query_raises(index, query):
    hits = index.search(query, top_k=5)
    assert hits == index.search(query, top_k=5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@given(query=st.text(st.characters(), max_size=60), top_k=st.integers(1, 50))
def test_no_text_raises(index, query, top_k):
    hits = index.search(query, top_k=top_k)
    assert len(hits) <= min(top_k, len(PARAGRAPHS))
    assert len({hit.position for hit in hits}) == len(hits)


def test_ties_come_in_the_order_of_the_corpus(engine):
    same = Corpus([(f"Title {i % 7}", f"the same words {chr(97 + i % 26)} zebra") for i in range(400)])
    with open_index(same, engine) as index:
        every = [hit.position for hit in index.search("zebra", top_k=400)]
        scores = [round(hit.score, 9) for hit in index.search("zebra", top_k=400)]
        assert len(every) == len(same)
        for top_k in (1, 3, 50, 399):
            assert [hit.position for hit in index.search("zebra", top_k=top_k)] == every[:top_k]
        assert every == [p for _, p in sorted(zip((-s for s in scores), every, strict=True))]


def test_the_paragraph_with_all_the_words_comes_first(engine):
    corpus = Corpus([(f"Page {i}", f"word{i} word{i + 1} filler text about things") for i in range(300)])
    with open_index(corpus, engine) as index:
        tops = [index.search(f"word{i} word{i + 1}")[0].position for i in range(300)]
    assert tops == list(range(300))


def test_a_query_keeps_its_telling_words():
    assert query_words('title:"Red fox" AND (den') == ["title", "red", "fox", "den"]
    assert query_words("Who is the mayor of the town?") == ["mayor", "town"]
    assert query_words("The Who") == ["the", "who"]
    assert query_words("a1 " * 9 + "é" + "x" * 41) == ["a1"]
    assert len(query_words(" ".join(map(str, range(1000))))) == MAX_QUERY_WORDS


def test_a_closed_index_says_so(engine):
    index = open_index(Corpus(PARAGRAPHS), engine)
    index.close()
    index.close()
    with pytest.raises(EnvError, match="closed"):
        index.search("x")
    with pytest.raises(EnvError, match="closed"):
        asyncio.run(index.asearch("x"))


def test_wrong_arguments_are_refused(index):
    with pytest.raises(ConfigError, match="top_k must be at least 1, got 0"):
        index.search("x", top_k=0)
    with pytest.raises(ConfigError, match="engine must be one of auto, tantivy, fts5, got 'tantivi'"):
        open_index(Corpus(PARAGRAPHS), "tantivi")


def test_without_tantivy_sqlite_ranks(monkeypatch):
    monkeypatch.setitem(sys.modules, "tantivy", None)
    with open_index(Corpus(PARAGRAPHS)) as index:
        assert index.engine == "fts5"
    with pytest.raises(MissingExtraError, match=r"pip install 'hyperrl\[search\]'"):
        open_index(Corpus(PARAGRAPHS), "tantivy")


# One index for a process


def test_a_corpus_has_one_index_however_many_ask(engine):
    corpus, twin = Corpus(PARAGRAPHS), Corpus(list(PARAGRAPHS))
    barrier, seen = threading.Barrier(8), []

    def ask(number):
        barrier.wait(10)
        seen.append(shared_index(corpus if number % 2 else twin, engine))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(seen) == 8
    assert len({id(one) for one in seen}) == 1
    close_indexes()
    assert shared_index(corpus, engine) is not seen[0]


def test_the_indexes_that_were_used_last_are_kept():
    corpora = [Corpus([(f"Page {i}", "text")]) for i in range(9)]
    first, second, *_ = [shared_index(corpus, "fts5") for corpus in corpora]
    assert shared_index(corpora[1], "fts5") is second
    assert shared_index(corpora[0], "fts5") is not first
    assert first.search("page"), "whoever holds it may go on"
    close_indexes()
    with pytest.raises(EnvError, match="closed"):
        second.search("page")


def test_many_coroutines_search_at_once(engine):
    corpus = Corpus([(f"Page {i}", f"word{i} filler") for i in range(6_000)])

    async def search_all():
        return await asyncio.gather(*(asearch(corpus, f"word{i}", engine=engine) for i in range(200)))

    hits = asyncio.run(search_all())
    assert [one[0].position for one in hits] == list(range(200))
    assert shared_index(corpus, engine).blocks is (engine == "fts5")
    close_indexes()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hyperrl-search")]


def _search_in_child(connection, corpus, engine):
    hits = asyncio.run(asearch(corpus, "Rudy Giuliani", engine=engine))
    connection.send([hit.title for hit in hits])
    connection.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_makes_its_own_index(engine, method):
    corpus = Corpus(PARAGRAPHS)
    before = shared_index(corpus, engine)
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=_search_in_child, args=(theirs, corpus, engine))
    child.start()
    try:
        assert ours.poll(60)
        assert ours.recv() == ["Rudy Giuliani", "Scott Howell"]
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert shared_index(corpus, engine) is before
    close_indexes()


# Corpora


def test_a_corpus_is_named_by_its_content():
    corpus = Corpus(PARAGRAPHS)
    assert corpus.digest == Corpus(PARAGRAPHS).digest == pickle.loads(pickle.dumps(corpus)).digest
    assert corpus.digest != Corpus(PARAGRAPHS[::-1]).digest
    assert Corpus([("ab", "c")]).digest != Corpus([("a", "bc")]).digest
    assert len(Corpus([*PARAGRAPHS, PARAGRAPHS[0]])) == len(PARAGRAPHS)
    with pytest.raises(DataError, match="at least one paragraph"):
        Corpus([])


def test_a_corpus_is_read_in_both_layouts(tmp_path):
    file = tmp_path / "corpus.jsonl"
    rows = [{"title": "A", "text": "b"}, {"id": "7", "contents": '"C d"\nthe text\nmore'}, {"text": "alone"}]
    file.write_text("\n\n".join(map(json.dumps, rows)), encoding="utf-8")
    corpus = read_corpus(file)
    assert corpus.titles == ("A", "C d", "")
    assert corpus.texts == ("b", "the text\nmore", "alone")
    assert read_corpus(str(file)) is corpus
    file.write_text('{"text": "changed"}')
    assert read_corpus(file).texts == ("changed",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no paragraphs"),
        ("{", "line 1 of .* is not JSON"),
        ('{"text": "x"}\n[1]', "line 2 of .* is a list"),
        ('{"title": "x", "body": 1}', r"needed are text .* found were \['body', 'title'\]"),
    ],
)
def test_a_broken_corpus_is_named(tmp_path, text, message):
    file = tmp_path / "corpus.jsonl"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        read_corpus(file)
    with pytest.raises(DataError, match="there is no corpus"):
        read_corpus(tmp_path / "none.jsonl")


# Snippets


def test_a_snippet_starts_where_the_words_are():
    text = (
        "The first sentence says little. The mayor was born in Ulm. He left it early. Much more follows here."
    )
    assert make_snippet(text, "anything", 1000) == text
    assert make_snippet(text, "born mayor", 40) == "... The mayor was born in Ulm. He ..."
    assert make_snippet(text, "nothing", 40) == "The first sentence says little. The ..."


@given(text=st.text(max_size=300), query=st.text(max_size=20), limit=st.integers(1, 120))
def test_a_snippet_keeps_its_limit(text, query, limit):
    assert len(make_snippet(text, query, limit)) <= limit
