"""Grading of answers in words, against the published SQuAD v1.1 formulas."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperrl.envs.grading import grade_qa
from hyperrl.envs.grading.qa import normalize_words
from hyperrl.errors import ConfigError

ASCII = st.text(alphabet=string.ascii_letters + string.digits + string.punctuation + " \n\t", max_size=40)
PHRASES = st.lists(
    st.sampled_from(["The", "cat,", "the", "Cat", "an", "a", "sat.", "on-the", "mat's", "U.S.", "42", "42"]),
    max_size=8,
)
TEXTS = st.one_of(ASCII, PHRASES.map(" ".join))


def reference_words(text: str) -> list[str]:
    """SQuAD v1.1, written without regular expressions: a word is a run of letters, digits and ``_``."""
    kept = "".join(char for char in text.lower() if char not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


def reference_f1(answer: str, gold: str) -> float:
    found, wanted = reference_words(answer), reference_words(gold)
    common, left = 0, list(wanted)
    for word in found:
        if word in left:
            left.remove(word)
            common += 1
    if not common:
        return 0.0
    precision, recall = common / len(found), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


@given(answer=TEXTS, golds=st.lists(TEXTS, min_size=1, max_size=3))
def test_ascii_texts_score_as_squad_does(answer, golds):
    if not reference_words(answer) or not all(map(reference_words, golds)):
        return
    verdict = grade_qa(answer, golds)
    assert verdict.exact == any(reference_words(answer) == reference_words(gold) for gold in golds)
    assert verdict.f1 == pytest.approx(max(reference_f1(answer, gold) for gold in golds))


@given(text=st.text(), gold=st.text().filter(str.strip))
def test_any_text_is_graded_between_zero_and_one(text, gold):
    verdict = grade_qa(text, gold)
    assert 0.0 <= verdict.f1 <= 1.0
    assert verdict.f1 == 1.0 or not verdict.exact


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("The Eiffel Tower.", "eiffel tower"),
        ("an  apple\n", "Apple"),
        ("U.S.", "US"),
        ("well-known", "wellknown"),
        ("<think>Rome?</think> Paris", "paris"),
        ("“Café”", "café"),
        ("1990–1991", "1990-1991"),
        ("Ｐａｒｉｓ", "paris"),
        ("STRASSE", "straße"),
        ("東京。", "東京"),
        ("\u200bPar\u00adis\ufeff", "Paris"),
        ("−5 °C", "-5 °C"),
        ("A", "a"),
        ("the", "The"),
        ("!", "!"),
    ],
)
def test_equal(answer, gold):
    assert grade_qa(answer, gold) == grade_qa(answer, [gold])
    assert grade_qa(answer, gold).exact
    assert grade_qa(answer, gold).f1 == 1.0


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("", "A", 0.0),
        ("the", "A", 0.0),
        ("?", "!", 0.0),
        ("<think>Paris", "Paris", 0.0),
        ("Theodore", "odore", 0.0),
        ("café", "cafe", 0.0),
        ("the cat sat", "a cat", 2 / 3),
        ("cat cat cat", "cat", 0.5),
        ("in Paris, France", "Paris", 0.5),
    ],
)
def test_not_equal(answer, gold, f1):
    verdict = grade_qa(answer, gold)
    assert not verdict.exact
    assert verdict.f1 == pytest.approx(f1)
    assert verdict.reason != "equal"


def test_the_best_alias_counts():
    verdict = grade_qa("New York City", ["NYC", "the city of New York", "new york city"])
    assert (verdict.exact, verdict.f1, verdict.closest) == (True, 1.0, "new york city")


def test_the_answer_is_looked_for_where_it_stands():
    assert grade_qa("It is \\boxed{Paris}", "paris", style="boxed").exact
    missing = grade_qa("It is Paris", "paris", style="boxed")
    assert (missing.exact, missing.f1, missing.extracted) == (False, 0.0, None)
    assert missing.reason.startswith("no answer")


@pytest.mark.parametrize("golds", [[], "", "  ", ["Paris", ""], None, [None], [5]])
def test_an_empty_gold_is_refused(golds):
    with pytest.raises(ConfigError, match="at least one answer"):
        grade_qa("Paris", golds)


def test_underscores_and_spaces_of_any_kind():
    assert normalize_words("a\u00a0the\u3000B _c_") == "b c"
