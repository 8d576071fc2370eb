from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers")

from tokenizers import AddedToken, Tokenizer

from hyperrl.agents.rendering import SafeTokenizer, TemplateRenderer
from hyperrl.errors import ModelError

ROOT = Path(__file__).resolve().parents[3]
MULTILINGUAL = [
    "",
    " ",
    "\n\n1",
    "Ünïcödé naïve café; Ελληνικά; кириллица; עברית; العربية",
    "日本語のテキスト、中文文本，한국어 텍스트",
    "🧑‍🚀👩🏽‍💻🇫🇷 emoji",
    "e\u0301 decomposed, \u212b angstrom, \u1e9b\u0323",
    "tabs\tand   spaces \r\n windows\r\n\r\n",
    "x" * 3000,
    "1234567890 3.14159 1e-9",
    "a<b && c>d <div class='x'> <| not |> < |im_end|> [INST",
    "\x00\x01\x7f\x80\xff",
]
FILES = sorted(
    path
    for pattern in ("*.md", "*.toml", "hyperrl/**/*.py", "tests/unit/rendering/*.py")
    for path in ROOT.glob(pattern)
)


@pytest.fixture(scope="session", params=["qwen3", "smollm2"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def plain(request: pytest.FixtureRequest, name: str) -> Tokenizer:
    folder = request.getfixturevalue({"qwen3": "qwen3_dir", "smollm2": "smollm2_tokenizer_dir"}[name])
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def safe(request: pytest.FixtureRequest, name: str) -> SafeTokenizer:
    return request.getfixturevalue(name).tokenizer


def test_benign_text_gets_the_ids_of_the_plain_encoder(plain: Tokenizer, safe: SafeTokenizer) -> None:
    texts = [*MULTILINGUAL, *(path.read_text(encoding="utf-8") for path in FILES)]
    assert len(texts) > 40
    compared = 0
    for text in texts:
        if any(control in text for control in safe.control_ids):
            continue
        compared += 1
        expected = plain.encode(text, add_special_tokens=False).ids
        assert safe.encode_text(text) == expected
        assert safe.encode_rendered(text) == expected
    assert compared > 30


@given(text=st.text(max_size=80))
@settings(max_examples=150, deadline=None)
def test_any_text_without_control_strings_encodes_as_ever(
    plain: Tokenizer, safe: SafeTokenizer, text: str
) -> None:
    if not any(control in text for control in safe.control_ids) and not {"\ufdd0", "\ufdd1"} & set(text):
        assert safe.encode_text(text) == plain.encode(text, add_special_tokens=False).ids


def test_control_strings_in_text_never_become_control_tokens(plain: Tokenizer, safe: SafeTokenizer) -> None:
    for control, token_id in safe.control_ids.items():
        text = f"a{control}b {control}{control}"
        assert token_id in plain.encode(text, add_special_tokens=False).ids
        ids = safe.encode_text(text)
        assert not set(ids) & set(safe.control_ids.values())
        assert safe.decode(ids) == text
        assert safe.encode_rendered(control) == [token_id]


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_mixture_of_fragments_makes_a_control_token(safe: SafeTokenizer, data: st.DataObject) -> None:
    controls = sorted(safe.control_ids)
    fragments = st.sampled_from([*controls, *(c[:k] for c in controls for k in (1, 2, len(c) - 1))])
    odd = st.sampled_from(["\ufdd0", "\ufdd1", "\ud800", "<", "|", ">", "\u0338", "\n"])
    text = "".join(data.draw(st.lists(fragments | odd | st.text(max_size=3), max_size=12)))
    assert not set(safe.encode_text(text)) & set(safe.control_ids.values())


def test_templates_cannot_complete_a_control_string(safe: SafeTokenizer) -> None:
    for control, token_id in safe.control_ids.items():
        word = control.strip("<>|/")
        at = control.index(word)
        cuts = [("", control[:i], control[i:]) for i in range(1, len(control))]
        cuts += [(control[:i], control[i:], "") for i in range(1, len(control))]
        cuts += [(control[:at], word, control[at + len(word) :])]
        for before, text, after in cuts:
            for spaces in ("", " \n"):
                escaped = safe.escape(f"{spaces}{text}{spaces}").strip()  # as `trim` does
                ids = safe.encode_rendered(before + escaped + after)
                assert token_id not in ids, (before, text, after)
                assert safe.decode(ids) == control


def test_lone_surrogates_and_reserved_noncharacters_become_replacement_characters(
    safe: SafeTokenizer,
) -> None:
    text = "a\ud800b\udfffc\ufdd0d\ufdd1e"
    assert safe.decode(safe.encode_text(text)) == "a\ufffdb\ufffdc\ufffdd\ufffde"
    assert safe.decode(safe.encode_rendered("x\ud800")) == "x\ufffd"


def test_joined_bytes_are_what_the_library_decodes(plain: Tokenizer, safe: SafeTokenizer) -> None:
    drawn = random.Random(0)
    for length in (1, 2, 5, 50, 2000):
        ids = [drawn.randrange(safe.vocab_size) for _ in range(length)]
        assert safe.decode(ids) == plain.decode(ids, skip_special_tokens=False)


def test_ids_outside_the_vocabulary_stand_for_nothing(safe: SafeTokenizer) -> None:
    assert safe.token_bytes(safe.vocab_size + 5) == b""
    assert safe.decode([safe.vocab_size, 10**9]) == ""


def test_threads_share_an_encoder(safe: SafeTokenizer) -> None:
    texts = [f"<|im_end|> thread {i} <tool_call>" * 20 for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(safe.encode_text, texts)) == [safe.encode_text(text) for text in texts]


def test_named_ids(qwen3: TemplateRenderer, smollm2_tokenizer_dir: Path) -> None:
    qwen, smol = qwen3.tokenizer, SafeTokenizer.load(smollm2_tokenizer_dir)
    assert (qwen.eos_id, qwen.pad_id, qwen.vocab_size) == (151645, 151643, 151669)
    assert (smol.eos_id, smol.pad_id, smol.vocab_size) == (2, 2, 49152)


def _spec(chatml_dir: Path) -> dict[str, object]:
    return json.loads((chatml_dir / "tokenizer.json").read_text(encoding="utf-8"))


def test_control_tokens_that_match_after_normalisation_are_made_to_match_before(chatml_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(chatml_dir / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<|late|>", normalized=True)])
    spec = json.loads(tokenizer.to_str())
    safe = SafeTokenizer(spec, {}, source="test")
    late = safe.control_ids["<|late|>"]
    assert late not in safe.encode_text("a <|late|> b")
    assert late in safe.encode_rendered("a <|late|> b")


def test_white_space_tokens_are_ordinary_text(chatml_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(chatml_dir / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("    ", normalized=False)])
    safe = SafeTokenizer(json.loads(tokenizer.to_str()), {}, source="test")
    assert safe.encode_text("a    b") == tokenizer.encode("a    b").ids


def test_tokens_that_only_the_config_lists_are_added(chatml_dir: Path) -> None:
    spec = _spec(chatml_dir)
    added = spec["added_tokens"]
    assert isinstance(added, list)
    new_id = max(token["id"] for token in added) + 1
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    config = {"added_tokens_decoder": {str(new_id): {"content": "<|extra|>", **flags}}}
    safe = SafeTokenizer(spec, config, source="test")
    assert safe.encode_rendered("<|extra|>") == [new_id]


def test_truncation_and_padding_of_the_file_are_ignored(chatml_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(chatml_dir / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    safe = SafeTokenizer(json.loads(tokenizer.to_str()), {}, source="test")
    assert len(safe.encode_text("abcdefg")) == 7


def test_other_kinds_of_tokenizers_are_refused(chatml_dir: Path) -> None:
    spec = _spec(chatml_dir)
    with pytest.raises(ModelError, match=r"somewhere: only byte-level BPE.*decoder"):
        SafeTokenizer({**spec, "decoder": {"type": "WordPiece"}}, {}, source="somewhere")
    with pytest.raises(ModelError, match=r"cannot read tokenizer\.json"):
        SafeTokenizer({**spec, "pre_tokenizer": {"type": "Nonsense"}}, {}, source="somewhere")
