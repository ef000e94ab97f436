"""Penalties, bias and bans: changes to single logits, made for the batch with a few indexed operations."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from engine_adapters.embedded.sampling.state import SamplingState


def has_edits(state: SamplingState) -> bool:
    """Whether `apply_edits` would change this sequence's row now."""
    return state.counts is not None or len(state.bias_ids) > 0 or len(state.banned) > 0


def apply_edits(logits: torch.Tensor, states: Sequence[SamplingState]) -> None:
    """Change `logits`, shape [rows, vocab], in place; row i belongs to `states[i]`.

    In this order:

    - repetition penalty r (CTRL, arXiv 1909.05858, with the sign rule of Transformers) over the distinct
      tokens of prompt and output: logit / r where logit > 0, else logit * r;
    - OpenAI's penalties over the output: logit - count * frequency - (count > 0) * presence;
    - logit_bias, added;
    - banned end tokens: -inf. A row with a grammar has them taken out of the grammar's mask instead.

    Ids outside the vocabulary have no logit to change and are passed over.
    """
    _penalize(logits, [(row, state) for row, state in enumerate(states) if state.counts is not None])
    _add_bias(logits, [(row, state) for row, state in enumerate(states) if len(state.bias_ids)])
    _ban(
        logits,
        [(row, state) for row, state in enumerate(states) if state.grammar is None and len(state.banned)],
    )


_Rows = Sequence[tuple[int, SamplingState]]


def _penalize(logits: torch.Tensor, rows: _Rows) -> None:
    counted = [(row, state.params, state.counts) for row, state in rows if state.counts is not None]
    if not counted:
        return
    index = _Index(logits, [(row, counts.ids) for row, _, counts in counted])
    count = index.values([counts.counts for _, _, counts in counted])
    repetition = index.spread([params.repetition_penalty for _, params, _ in counted])
    frequency = index.spread([params.frequency_penalty for _, params, _ in counted])
    presence = index.spread([params.presence_penalty for _, params, _ in counted])
    old = logits[index.rows, index.ids]
    new = torch.where(old > 0, old / repetition, old * repetition)
    logits[index.rows, index.ids] = new - count * frequency - (count > 0) * presence


def _add_bias(logits: torch.Tensor, rows: _Rows) -> None:
    if not rows:
        return
    index = _Index(logits, [(row, state.bias_ids) for row, state in rows])
    logits[index.rows, index.ids] += index.values([state.bias_values for _, state in rows])


def _ban(logits: torch.Tensor, rows: _Rows) -> None:
    if not rows:
        return
    index = _Index(logits, [(row, state.banned) for row, state in rows])
    logits[index.rows, index.ids] = float("-inf")


class _Index:
    """(row, id) pairs of several rows, flat, as index tensors on the logits' device. No pair comes twice."""

    def __init__(self, logits: torch.Tensor, ids_by_row: Sequence[tuple[int, NDArray[np.int64]]]) -> None:
        self._device = logits.device
        self._lengths = [len(ids) for _, ids in ids_by_row]
        ids = np.concatenate([ids for _, ids in ids_by_row])
        inside = (ids >= 0) & (ids < logits.shape[1])
        self._inside = None if inside.all() else inside
        self.rows = self._tensor(np.repeat([row for row, _ in ids_by_row], self._lengths))
        self.ids = self._tensor(ids)

    def values(self, parts: Sequence[NDArray[np.float32]]) -> torch.Tensor:
        """One value a pair, given as one array a row."""
        return self._tensor(np.concatenate(parts))

    def spread(self, per_row: Sequence[float]) -> torch.Tensor:
        """One value a pair, given as one number a row."""
        return self._tensor(np.repeat(np.asarray(per_row, np.float32), self._lengths))

    def _tensor(self, flat: NDArray[np.int64] | NDArray[np.float32]) -> torch.Tensor:
        kept = flat if self._inside is None else flat[self._inside]
        return torch.from_numpy(np.ascontiguousarray(kept)).to(self._device)
