"""Text to token ids, such that a control token's text in it never becomes the control token.

Chat templates mark roles with control tokens, and a plain encoder makes one of every text that looks
like one, so a tool result could end its turn and speak as the system. Here the text of users, tools and
environments is escaped first: a noncharacter goes after the first character of every control string.
Added tokens match the raw text, so they no longer match there; the normalizer, which runs afterwards,
deletes the noncharacter, so what is left encodes as ordinary text. The ends of a text are guarded the same
way where they could make a control string together with what a template writes next to them, as in
``<parameter={{ name }}>``. On text without control strings the ids are those of the plain encoder.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hyperrl.agents.rendering.model_files import read_tokenizer
from hyperrl.errors import MissingExtraError, ModelError

try:
    from tokenizers import Tokenizer
except ImportError as error:
    raise MissingExtraError("tokenizers", "agents") from error

__all__ = ["ESCAPE", "RESERVED", "SafeTokenizer"]

ESCAPE = "\ufdd0"
"""The noncharacter that breaks control strings up; Unicode reserves it for use inside a program."""

RESERVED = "\ufdd1"
"""A second one that untrusted text never contains after :meth:`SafeTokenizer.escape`."""

_UNCLEAN = re.compile(f"[\ud800-\udfff{ESCAPE}{RESERVED}]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class _Fragments:
    """Parts of control strings, which a template could complete with its own text."""

    def __init__(self, control: Iterable[str]) -> None:
        strings = list(control)
        self._longest = max(map(len, strings), default=0)
        self._starts = frozenset(text[:i] for text in strings for i in range(1, len(text)))
        self._ends = frozenset(text[i:] for text in strings for i in range(1, len(text)))
        self._cores = frozenset(core for text in strings for core in _cores(text))

    def guard(self, text: str) -> str:
        """Return the text with :data:`ESCAPE` at an end that a template could complete.

        White space at the ends does not count, since templates trim it.
        """
        body = text.strip()
        if not body:
            return text
        start = len(text) - len(text.lstrip())
        end = start + len(body)
        lengths = range(1, min(self._longest, len(body)) + 1)
        if any(body[-length:] in self._starts for length in lengths):
            text = text[:end] + ESCAPE + text[end:]
        if body in self._cores or any(body[:length] in self._ends for length in lengths):
            text = text[:start] + ESCAPE + text[start:]
        return text


class SafeTokenizer:
    """A byte-level BPE tokenizer that tells trusted markup from untrusted text. Safe to share by threads.

    Attributes:
        named_tokens: ``bos_token``, ``eos_token``, ... as far as the model has them: name to text.
        control_ids: the control tokens: text to id.
        vocab_size: one more than the largest id.
        eos_id: id of the end-of-sequence token, if the model names one.
        pad_id: id of the padding token; where none is named, of the end of sequence. May equal ``eos_id``,
            so never make a mask from it.
    """

    def __init__(self, spec: Mapping[str, Any], config: Mapping[str, Any], *, source: str) -> None:
        added = _added_tokens(spec, config)
        _check_byte_level(spec, source)
        self._tokenizer = _build(spec, added, source)
        self._added_bytes = {token["id"]: token["content"].encode() for token in added}
        self._bytes: dict[int, bytes] = dict(self._added_bytes)
        self.named_tokens = {name: _content(config[name]) for name in _NAMED if config.get(name)}
        self.control_ids: dict[str, int] = {t["content"]: t["id"] for t in added if not _is_plain(t, source)}
        self._control = _control_pattern(self.control_ids)
        self._fragments = _Fragments(self.control_ids)
        largest = max(self._added_bytes, default=-1)
        self.vocab_size: int = max(self._tokenizer.get_vocab_size(with_added_tokens=True), largest + 1)
        self.eos_id: int | None = self._named_id("eos_token")
        pad_id = self._named_id("pad_token")
        self.pad_id: int = next((i for i in (pad_id, self.eos_id) if i is not None), 0)

    @classmethod
    def load(cls, model_dir: Path) -> SafeTokenizer:
        """Read tokenizer.json and tokenizer_config.json of a model directory.

        Raises:
            ModelError: they are missing or unreadable, or it is no byte-level BPE tokenizer.
        """
        spec, config = read_tokenizer(model_dir)
        return cls(spec, config, source=str(model_dir))

    @functools.cached_property
    def vocabulary_digest(self) -> str:
        """SHA-256 of which text has which id: token ids mean the same to tokenizers of one digest."""
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        lines = sorted(f"{token_id}\t{text}\n" for text, token_id in vocabulary.items())
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()

    def escape(self, text: str) -> str:
        """Return untrusted text in the form that templates may insert.

        Lone surrogates, which no encoder takes, and the two reserved noncharacters become U+FFFD.
        """
        clean = _UNCLEAN.sub("\ufffd", str.__str__(text))
        return self._fragments.guard(self._control.sub(lambda match: match[0] + ESCAPE, clean))

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of untrusted text; none of them is a control token."""
        return self.encode_rendered(self.escape(text))

    def encode_rendered(self, text: str) -> list[int]:
        """Return the ids of a template's output (or other trusted markup), control tokens recognised.

        What came from outside must have been escaped before it went in.
        """
        clean = _LONE_SURROGATE.sub("\ufffd", text)
        ids: list[int] = self._tokenizer.encode(clean, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """Return what a token stands for; control tokens for their text, unknown ids for nothing.

        A token may hold part of a character, so only a whole sequence need be UTF-8.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = _bpe_bytes(self._tokenizer.id_to_token(token_id) or "")
        return known

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, control tokens included; bytes that are no UTF-8 show as U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def _named_id(self, name: str) -> int | None:
        text = self.named_tokens.get(name)
        return None if text is None else self._tokenizer.token_to_id(text)


def _added_tokens(spec: Mapping[str, Any], config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the added tokens, those that only tokenizer_config.json lists included, by id."""
    listed = config.get("added_tokens_decoder") or {}
    by_id = {int(i): {**token, "id": int(i)} for i, token in listed.items()}
    by_id |= {token["id"]: token for token in spec.get("added_tokens") or []}
    return [{**by_id[i], "normalized": False} for i in sorted(by_id)]


def _check_byte_level(spec: Mapping[str, Any], source: str) -> None:
    decoder = spec.get("decoder") or {}
    kinds = [decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", []))]
    if (spec.get("model") or {}).get("type") != "BPE" or "ByteLevel" not in kinds:
        raise ModelError(
            f"{source}: only byte-level BPE tokenizers are supported (Qwen, Llama 3, SmolLM, DeepSeek, ...);"
            f" this one is {(spec.get('model') or {}).get('type')} with the decoder {kinds}"
        )


def _build(spec: Mapping[str, Any], added: Sequence[Mapping[str, Any]], source: str) -> Tokenizer:
    delete = {"type": "Replace", "pattern": {"String": ESCAPE}, "content": ""}
    own = spec.get("normalizer")
    changed = {
        **spec,
        "added_tokens": list(added),
        "normalizer": {"type": "Sequence", "normalizers": [delete, own] if own else [delete]},
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    try:
        return Tokenizer.from_str(json.dumps(changed))
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"{source}: the tokenizers library cannot read tokenizer.json: {error}") from error


def _is_plain(token: Mapping[str, Any], source: str) -> bool:
    """Whether an added token is ordinary text: white space, a word, or a single character."""
    content = token["content"]
    if content.isspace():
        return True
    if len(content) > 1 and (token.get("special") or not content.replace(" ", "").isalnum()):
        return False
    if token.get("special"):
        raise ModelError(f"{source}: the special token {content!r} cannot be told from ordinary text")
    return True


def _control_pattern(control: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches the first character of each control string."""
    rests: dict[str, list[str]] = {}
    for text in control:
        rests.setdefault(text[0], []).append(re.escape(text[1:]))
    parts = [f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()]
    return re.compile("|".join(parts) or "(?!)", re.DOTALL)


def _cores(text: str) -> Iterator[str]:
    """Yield the word in a control string, with and without the punctuation around it."""
    word = re.search(r"\w(?:.*\w)?", text, re.DOTALL)
    if word is not None:
        yield from (text[i:j] for i in range(word.start() + 1) for j in range(word.end(), len(text) + 1))


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)


def _byte_alphabet() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for.

    Printable bytes stand for themselves, the others are moved up from U+0100 in order: GPT-2's
    ``bytes_to_unicode``.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + i): byte for i, byte in enumerate(moved)}


_ALPHABET = _byte_alphabet()


def _bpe_bytes(token: str) -> bytes:
    try:
        return bytes([_ALPHABET[character] for character in token])
    except KeyError:  # not spelled in the byte alphabet: stands for itself, as in the library's decoder
        return token.encode("utf-8", "replace")
