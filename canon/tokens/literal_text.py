"""Encodes text that must not become control tokens, whatever it looks like."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from canon.errors import TemplateError
from canon.tokens.tokenizer_set import Place, TokenizerSet, encode


class ControlIds:
    """Which ids act on the model. The unknown token is none: any rare character becomes it."""

    def __init__(self, tokenizers: TokenizerSet) -> None:
        size = max(tokenizers.plain.get_vocab_size(with_added_tokens=True), *tokenizers.added, 0) + 1
        self._is_control = np.zeros(size, dtype=np.bool_)
        for content, index in tokenizers.special_ids.items():
            self._is_control[index] = content != tokenizers.unknown_token

    def where(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """bool [tokens]: which of `ids` are control tokens."""
        return self._is_control[ids]

    def any_in(self, ids: NDArray[np.int32]) -> bool:
        return bool(self._is_control[ids].any())


class LiteralEncoder:
    """Encodes pieces of text to ids of which none is a control token.

    Most tokenizers do so when told that special tokens are text. Those with the special tokens among the words of
    their vocabulary (Unigram) or with normalizers that make one out of something else do not; there the text is cut
    inside whatever became a control token, and the parts are encoded alone.
    """

    def __init__(self, tokenizers: TokenizerSet, control: ControlIds) -> None:
        self._tokenizers = tokenizers
        self._control = control

    def encode(self, text: str, place: Place) -> NDArray[np.int32]:
        """int32 [tokens] of `text`, in which a special token is written.

        Raises `TemplateError` where a single character is a control token to the vocabulary.
        """
        return self.checked(encode(self._tokenizers.form(place, literal=True), text), text, place)

    def checked(self, ids: NDArray[np.int32], text: str, place: Place) -> NDArray[np.int32]:
        """`ids`, which `text` was encoded to; others where a control token is among them. Raises like `encode`."""
        return self._cut(text, place) if self._control.any_in(ids) else ids

    def _cut(self, text: str, place: Place) -> NDArray[np.int32]:
        encoding = self._tokenizers.form(place, literal=True).encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, dtype=np.int32)
        spans = [encoding.offsets[i] for i in np.flatnonzero(self._control.where(ids))]
        if not spans:
            return ids
        if any(end - start <= 1 for start, end in spans):
            raise TemplateError(f"{text!r:.80} cannot be sent as text: it is a control token of this model")
        bounds = [0, *(start + 1 for start, _ in spans), len(text)]
        inner: list[Place] = ["inner"] * len(spans)
        pieces = [
            (text[a:b], where)
            for (a, b), where in zip(pairwise(bounds), [place, *inner], strict=True)
            if a < b
        ]
        return np.concatenate([self._cut(piece, where) for piece, where in pieces])
