"""The bytes and the text every single token stands for, read off the tokenizer's own decoder."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_ID_LIMIT = 1 << 32  # the library counts ids in unsigned 32-bit integers


class TokenTexts:
    """What a token adds to the text.

    For decoders whose tokens can be taken one by one: byte-level BPE (`ByteLevel`), and what SentencePiece
    models are converted to (`Replace`, `Metaspace`, `ByteFallback`, `Fuse`, and a `Strip` at the start of
    the text). For every other decoder `by_token` is False: there neighbours matter, and `raw` decodes the
    token alone.

    Ids outside the vocabulary (padding rows of the logits) stand for nothing. The tables fill up as tokens
    are asked for; `token_texts` gives the one that all users of a tokenizer share.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.by_token = True
        self.starts_dropped = 0  # how many leading spaces the decoder strips from the whole text
        self._first_mark: str | None = None  # Metaspace drops this mark in the first token: no space
        self._byte_level = False
        self._byte_fallback = False
        self._replacements: list[tuple[str, str]] = []
        self._memo: dict[int, bytes] = {}
        added = tokenizer.get_added_tokens_decoder()
        # The library tells control tokens by their text, so two ids with one text are both special.
        special = {token.content for token in added.values() if token.special}
        self.special = {i: token.content for i, token in added.items() if token.content in special}
        self._read(_decoder_steps(tokenizer))

    def raw(self, token_id: int) -> bytes:
        """The token's own bytes: possibly a part of a character, `b""` outside the vocabulary."""
        known = self._memo.get(token_id)
        if known is None:
            known = self._memo[token_id] = self._compute(token_id)
        return known

    def text(self, token_id: int) -> str:
        """The token's own text for people to read: bytes that are no whole character show as U+FFFD."""
        return self.raw(token_id).decode(errors="replace")

    def raw_first(self, token_id: int) -> bytes:
        """The token's bytes where it is the first one of a whole text."""
        if self._first_mark is None:
            return self.raw(token_id)
        return self._bytes((self._token(token_id) or "").replace(self._first_mark, ""))

    def knows(self, token_id: int) -> bool:
        """Whether the vocabulary has this id."""
        return self._token(token_id) is not None

    def _token(self, token_id: int) -> str | None:
        return self.tokenizer.id_to_token(token_id) if 0 <= token_id < _ID_LIMIT else None

    def _compute(self, token_id: int) -> bytes:
        token = self._token(token_id)
        if token is None:
            return b""
        if not self.by_token:
            return self.tokenizer.decode([token_id], skip_special_tokens=False).encode()
        return self._bytes(token)

    def _bytes(self, token: str) -> bytes:
        if self._byte_level:
            return _from_alphabet(token)
        for old, new in self._replacements:
            token = token.replace(old, new)
        byte = _BYTE_TOKEN.fullmatch(token) if self._byte_fallback else None
        return bytes([int(byte[1], 16)]) if byte else token.encode()

    def _read(self, steps: list[Mapping[str, Any]]) -> None:
        fused = False
        for step in steps:
            match step:
                case {"type": "ByteLevel"} if len(steps) == 1:
                    self._byte_level = True
                case {"type": "ByteFallback"}:
                    self._byte_fallback = True
                case {"type": "Fuse"}:
                    fused = True
                case {"type": "Replace", "pattern": {"String": old}, "content": new} if not fused:
                    self._replacements.append((old, new))
                case {"type": "Metaspace", "replacement": mark} if not fused:
                    self._replacements.append((mark, " "))
                    self._first_mark = None if step.get("prepend_scheme") == "never" else mark
                case {"type": "Strip", "content": " ", "start": start, "stop": 0} if fused:
                    self.starts_dropped = start
                case _:
                    self.by_token = False
        self.by_token = self.by_token and bool(steps)


@lru_cache(maxsize=8)
def token_texts(tokenizer: Tokenizer) -> TokenTexts:
    """One table for each tokenizer object, shared by all its sequences."""
    return TokenTexts(tokenizer)


def _decoder_steps(tokenizer: Tokenizer) -> list[Mapping[str, Any]]:
    if tokenizer.decoder is None:
        return []
    decoder = json.loads(tokenizer.decoder.__getstate__())
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def _byte_level_alphabet() -> dict[str, int]:
    """Byte-level BPE's printable stand-in for each byte: printable Latin-1 bytes stand for themselves."""
    themselves = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in themselves]
    alphabet = {chr(byte): byte for byte in themselves}
    return alphabet | {chr(0x100 + at): byte for at, byte in enumerate(others)}


_ALPHABET = _byte_level_alphabet()


def _from_alphabet(token: str) -> bytes:
    try:
        return bytes([_ALPHABET[char] for char in token])
    except KeyError:  # an added token, kept as plain text
        return token.encode()
