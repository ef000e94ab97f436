"""Grammar masks on logits: bits from the grammar's machine, then one masked write for all rows."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engine_adapters.embedded.sampling.errors import GrammarError
from engine_adapters.embedded.sampling.grammar import GrammarMatcher

_Row = tuple[int, GrammarMatcher, NDArray[np.int64]]  # row, its grammar, ids banned besides


def apply_grammars(logits: torch.Tensor, rows: Sequence[_Row]) -> dict[int, GrammarError]:
    """Set to -inf, in place, what each row's grammar forbids; shape of `logits` [rows of the batch, vocab].

    Banned ids are forbidden too unless nothing would then be allowed: a grammar that can only end, ends.
    Returns the error of every row whose grammar failed; the others are done.
    """
    errors: dict[int, GrammarError] = {}
    masks: dict[int, NDArray[np.bool_]] = {}
    for row, grammar, banned in rows:
        try:
            masks[row] = _allowed(grammar, banned, logits.shape[1])
        except GrammarError as error:
            errors[row] = error
    if masks:
        index = torch.tensor(list(masks), device=logits.device)
        forbidden = torch.from_numpy(~np.stack(list(masks.values()))).to(logits.device)
        logits[index] = logits[index].masked_fill_(forbidden, float("-inf"))
    return errors


def _allowed(grammar: GrammarMatcher, banned: NDArray[np.int64], vocab: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(grammar.mask(), bitorder="little")[:vocab]
    allowed = np.zeros(vocab, np.bool_)
    allowed[: len(bits)] = bits
    if len(banned):
        strict = allowed.copy()
        strict[banned[banned < vocab]] = False
        allowed = strict if strict.any() else allowed
    return allowed
