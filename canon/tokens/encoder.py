"""Text to token ids, where what was seen before is not encoded again."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from canon.tokens.literal_text import ControlIds, LiteralEncoder
from canon.tokens.memo import EncodingMemo, text_key
from canon.tokens.split_points import safe_tokens
from canon.tokens.text_scanner import TextScanner
from canon.tokens.tokenizer_set import TokenizerSet, encode

Span = tuple[int, int]  # start and end in characters


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of text between two cuts."""

    text: str
    first: bool  # it begins the prompt
    literal: bool = False  # nothing in it may act as a control token
    has_special: bool = False  # a special token is written in it

    @property
    def form(self) -> bytes:
        return b"%d%d%d" % (self.first, self.literal, self.has_special)


class PromptEncoder:
    """Encodes whole prompts. Thread-safe. Ids are always those of a plain encode of the same text.

    `scope` keeps the memory of what was seen apart: how long an encode takes tells nobody of another's prompts.
    """

    def __init__(self, tokenizers: TokenizerSet, memo: EncodingMemo) -> None:
        self._tokenizers = tokenizers
        self._memo = memo
        self._safe = safe_tokens(tokenizers)
        self._cuts = TextScanner(self._safe)
        self._special = TextScanner(tokenizers.special_ids)
        self._control = ControlIds(tokenizers)
        self._literal = LiteralEncoder(tokenizers, self._control)

    def encode(self, text: str, scope: str = "") -> NDArray[np.int32]:
        """int32 [tokens]; special tokens in `text` act as such, nothing is put before or behind it."""
        return self._assemble(text, self._cuts.spans(text), scope, literal=False, suspicious=False)

    def encode_controlled(
        self, text: str, control: Sequence[Span], scope: str = "", *, suspicious: bool = True
    ) -> NDArray[np.int32]:
        """int32 [tokens]; of the special tokens in `text` only those at `control` act, all others are text.

        `suspicious`: special tokens are, or may be, written elsewhere too.
        """
        if all(text[start:end] in self._safe for start, end in control) and self._safe:
            return self._assemble(text, control, scope, literal=True, suspicious=suspicious)
        return self._encode_whole(text, control, scope)

    def _assemble(
        self, text: str, cuts: Sequence[Span], scope: str, *, literal: bool, suspicious: bool
    ) -> NDArray[np.int32]:
        """Ids of `text` cut at `cuts`, each of which is one safe token."""
        pieces = [
            _Piece(text[a:b], a == 0, literal, suspicious and self._special.found_in(text[a:b]))
            for a, b in zip([0, *(end for _, end in cuts)], [*(s for s, _ in cuts), len(text)], strict=True)
        ]
        encoded = iter(self._encode_pieces([piece for piece in pieces if piece.text], scope))
        parts: list[NDArray[np.int32]] = []
        for piece, cut in zip(pieces, [*cuts, None], strict=True):
            if piece.text:
                parts.append(next(encoded))
            if cut is not None:
                parts.append(self._token(text[cut[0] : cut[1]]))
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def _token(self, content: str) -> NDArray[np.int32]:
        return np.array([self._safe[content]], dtype=np.int32)

    def _encode_pieces(self, pieces: Sequence[_Piece], scope: str) -> Iterable[NDArray[np.int32]]:
        within = text_key(b"scope", scope)
        keys = [text_key(within + piece.form, piece.text) for piece in pieces]
        known = self._memo.get(keys)
        fresh = {
            key: self._encode_piece(piece)
            for key, piece, ids in zip(keys, pieces, known, strict=True)
            if ids is None
        }
        self._memo.put(fresh.items())
        return [fresh[key] if ids is None else ids for key, ids in zip(keys, known, strict=True)]

    def _encode_piece(self, piece: _Piece) -> NDArray[np.int32]:
        if piece.literal:
            return self._literal.encode(piece.text, first=piece.first, has_special=piece.has_special)
        return encode(self._tokenizers.plain if piece.first else self._tokenizers.inner, piece.text)

    def _encode_whole(self, text: str, control: Sequence[Span], scope: str) -> NDArray[np.int32]:
        """For tokenizers whose texts cannot be cut: encodes all at once, then undoes what must not act."""
        key = text_key(text_key(text_key(b"whole", scope), repr(control)), text)
        if (known := self._memo.get([key])[0]) is None:
            known = self._undo(text, control)
            self._memo.put([(key, known)])
        return known

    def _undo(self, text: str, control: Sequence[Span]) -> NDArray[np.int32]:
        encoding = self._tokenizers.plain.encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, dtype=np.int32)
        parts: list[NDArray[np.int32]] = []
        starts = [start for start, _ in control]
        done = 0
        for at in np.flatnonzero(self._control.where(ids)):
            start, end = encoding.offsets[at]
            nearest = bisect_left(starts, start)
            if nearest < len(control) and control[nearest][1] <= end:
                continue  # written by the template; blanks around it may be part of it
            written = self._literal.encode(text[start:end], first=start == 0, has_special=True)
            parts += [ids[done:at], written]
            done = int(at) + 1
        return np.concatenate([*parts, ids[done:]]) if parts else ids
