"""Text to token ids, where what was seen before is not encoded again."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from canon.errors import PromptTooLongError
from canon.tokens.literal_text import ControlIds, LiteralEncoder
from canon.tokens.memo import EncodingMemo, text_key
from canon.tokens.seams.chunks import Chunker, ChunkSizes
from canon.tokens.seams.finding import barring_words, find_seams
from canon.tokens.split_points import safe_tokens
from canon.tokens.text_scanner import TextScanner
from canon.tokens.tokenizer_set import Place, TokenizerSet, encode_all

Span = tuple[int, int]  # start and end in characters

_BATCH = (
    256  # texts encoded at a time: what the tokenizer tells of each token takes a hundred bytes meanwhile
)
_BOUNDED_BATCH = 16  # where it may end early


class _Piece(msgspec.Struct, frozen=True):
    """A run of text between two cuts."""

    text: str
    place: Place
    literal: bool = False  # nothing in it may act as a control token
    has_special: bool = False  # a special token is written in it


class PromptEncoder:
    """Encodes whole prompts. Thread-safe. Ids are always those of a plain encode of the same text.

    `scope` keeps the memory of what was seen apart: how long an encode takes tells nobody of another's prompts.
    """

    def __init__(
        self, tokenizers: TokenizerSet, memo: EncodingMemo, chunk_sizes: ChunkSizes | None = None
    ) -> None:
        self._tokenizers = tokenizers
        self._memo = memo
        self._safe = safe_tokens(tokenizers)
        self._safe_ids = {token: np.array([each], dtype=np.int32) for token, each in self._safe.items()}
        self._cuts = TextScanner(self._safe)
        self._chunker = Chunker(find_seams(tokenizers), chunk_sizes, barring_words(tokenizers))
        self._special = TextScanner(tokenizers.special_ids)
        self._control = ControlIds(tokenizers)
        self._literal = LiteralEncoder(tokenizers, self._control)

    def encode(self, text: str, scope: str = "", most: int | None = None) -> NDArray[np.int32]:
        """int32 [tokens]; special tokens in `text` act as such, nothing is put before or behind it.

        Raises `PromptTooLongError` as soon as it is certain that there are more than `most` tokens; None: any number.
        """
        if most is not None:
            _check(self._tokenizers.fewest.of(text), most)
        return self._assemble(text, self._cuts.spans(text), scope, most, literal=False, suspicious=False)

    def encode_controlled(
        self,
        text: str,
        control: Sequence[Span],
        scope: str = "",
        most: int | None = None,
        *,
        suspicious: bool = True,
    ) -> NDArray[np.int32]:
        """int32 [tokens]; of the special tokens in `text` only those at `control` act, all others are text.

        `suspicious`: special tokens are, or may be, written elsewhere too. `most` as for `encode`.
        """
        if most is not None:
            _check(self._tokenizers.fewest.of(text), most)
        if self._safe and self._safe.keys() >= {text[start:end] for start, end in control}:
            return self._assemble(text, control, scope, most, literal=True, suspicious=suspicious)
        return self._encode_undoing(text, control, scope, most)

    def _assemble(
        self,
        text: str,
        cuts: Sequence[Span],
        scope: str,
        most: int | None,
        *,
        literal: bool,
        suspicious: bool,
    ) -> NDArray[np.int32]:
        """Ids of `text` cut at `cuts`, each of which is one safe token."""
        pieces: list[_Piece] = []
        parts: list[NDArray[np.int32] | None] = []  # None: the next one of `pieces`
        at = 0
        for start, end in cuts:
            if at < start:
                parts += [None] * self._cut(pieces, text[at:start], at == 0, literal, suspicious)
            parts.append(self._safe_ids[text[start:end]])
            at = end
        if at < len(text):
            parts += [None] * self._cut(pieces, text[at:], at == 0, literal, suspicious)
        if not parts:
            return np.empty(0, dtype=np.int32)
        encoded = iter(self._encode_pieces(pieces, scope, len(parts) - len(pieces), most))
        return np.concatenate([next(encoded) if part is None else part for part in parts])

    def _cut(self, pieces: list[_Piece], text: str, first: bool, literal: bool, suspicious: bool) -> int:
        """Add `text`, which stands between two safe tokens, to `pieces`, in parts that are encoded alone. How many."""
        place: Place = "first" if first else "inner"
        # As nearly always, it is none.
        cuts = self._chunker.cuts(text) if len(text) > self._chunker.whole else None
        if not cuts:
            pieces.append(_Piece(text, place, literal, suspicious and self._special.found_in(text)))
            return 1
        for start, end in pairwise([0, *cuts, len(text)]):
            part = text[start:end]
            pieces.append(_Piece(part, place, literal, suspicious and self._special.found_in(part)))
            place = "continuing"
        return len(cuts) + 1

    def _encode_pieces(
        self, pieces: Sequence[_Piece], scope: str, tokens: int, most: int | None
    ) -> Sequence[NDArray[np.int32]]:
        """`tokens` are what the prompt has beside them."""
        keys = [
            text_key(_form(scope, piece.place, piece.literal, piece.has_special), piece.text)
            for piece in pieces
        ]
        known = self._memo.get(keys)
        found = [ids for ids in known if ids is not None]
        if len(found) == len(keys):
            return found
        new = {key: piece for key, piece, ids in zip(keys, pieces, known, strict=True) if ids is None}
        tokens += sum(map(len, found))
        fresh = dict(zip(new, self._encode_new(list(new.values()), tokens, most), strict=True))
        self._memo.put(fresh.items())
        return [fresh[key] if ids is None else ids for key, ids in zip(keys, known, strict=True)]

    def _encode_new(self, pieces: Sequence[_Piece], tokens: int, most: int | None) -> list[NDArray[np.int32]]:
        """In batches of like pieces, since a tokenizer encodes the texts of a batch side by side."""
        found: list[NDArray[np.int32] | None] = [None] * len(pieces)
        like: dict[tuple[Place, bool], list[int]] = {}
        for i, piece in enumerate(pieces):
            like.setdefault((piece.place, piece.literal and piece.has_special), []).append(i)
        for (place, literal), indices in like.items():
            tokenizer = self._tokenizers.form(place, literal=literal)
            for some in _batches(indices, _BATCH if most is None else _BOUNDED_BATCH):
                if most is not None:
                    _check(tokens, most)
                for i, ids in zip(some, encode_all(tokenizer, [pieces[i].text for i in some]), strict=True):
                    found[i] = self._checked(ids, pieces[i])
                    tokens += len(ids)
        return [ids for ids in found if ids is not None]

    def _checked(self, ids: NDArray[np.int32], piece: _Piece) -> NDArray[np.int32]:
        return self._literal.checked(ids, piece.text, piece.place) if piece.literal else ids

    def _encode_undoing(
        self, text: str, control: Sequence[Span], scope: str, most: int | None
    ) -> NDArray[np.int32]:
        """For tokenizers whose special tokens are no safe cuts: lets all of them act, then undoes what must not."""
        within = text_key(b"undoing", scope)
        parts: list[NDArray[np.int32]] = []
        place: Place = "first"
        at = 0  # among `control`
        for start, end in pairwise([0, *self._chunker.cuts(text), len(text)]):
            behind = bisect_left(control, (end, end))
            own = [(a - start, b - start) for a, b in control[at:behind]]
            parts.append(self._undone(text[start:end], own, place, within))
            if most is not None:
                _check(sum(map(len, parts)), most)
            place, at = "continuing", behind
        return np.concatenate(parts)

    def _undone(self, text: str, control: Sequence[Span], place: Place, within: bytes) -> NDArray[np.int32]:
        key = text_key(text_key(within, f"{place}{control!r}"), text)
        if (known := self._memo.get([key])[0]) is None:
            known = self._undo(text, control, place)
            self._memo.put([(key, known)])
        return known

    def _undo(self, text: str, control: Sequence[Span], place: Place) -> NDArray[np.int32]:
        encoding = self._tokenizers.form(place, literal=False).encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, dtype=np.int32)
        parts: list[NDArray[np.int32]] = []
        starts = [start for start, _ in control]
        done = 0
        for at in np.flatnonzero(self._control.where(ids)):
            start, end = encoding.offsets[at]
            nearest = bisect_left(starts, start)
            if nearest < len(control) and control[nearest][1] <= end:
                continue  # written by the template; blanks around it may be part of it
            written = self._literal.encode(text[start:end], "inner" if start or place != "first" else "first")
            parts += [ids[done:at], written]
            done = int(at) + 1
        return np.concatenate([*parts, ids[done:]]) if parts else ids


@lru_cache(maxsize=1024)
def _form(scope: str, place: Place, literal: bool, has_special: bool) -> bytes:
    """Of pieces whose ids are the same where their texts are."""
    return text_key(b"scope", scope) + f"{place}{literal:d}{has_special:d}".encode()


def _check(tokens: int, most: int) -> None:
    if tokens > most:
        raise PromptTooLongError(tokens)


def _batches(indices: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    return (indices[at : at + size] for at in range(0, len(indices), size))
