"""What a tokenizer puts before and behind every text, such as a begin-of-text token."""

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from canon.errors import ModelFolderError


class Surround:
    """The ids that the tokenizer's post-processor adds, learned from what it does to a short text.

    Post-processors put fixed ids around a single text, whatever the text is.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        bare = tokenizer.encode("a", add_special_tokens=False).ids
        full = tokenizer.encode("a", add_special_tokens=True).ids
        added = len(full) - len(bare)
        at = next((i for i in range(added + 1) if full[i : i + len(bare)] == bare), None)
        if at is None:
            raise ModelFolderError("tokenizer.json has a post-processor that changes the text's own tokens")
        self._before = np.array(full[:at], dtype=np.int32)
        self._behind = np.array(full[at + len(bare) :], dtype=np.int32)

    def around(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """`ids` with those ids around, int32 [tokens]."""
        return np.concatenate((self._before, ids, self._behind))
