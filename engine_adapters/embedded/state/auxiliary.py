"""The state of one sequence, and a copy of it that many may start from."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state behind the first `length` tokens of a prompt. Nobody writes to its tensors."""

    length: int
    tensors: tuple[torch.Tensor, ...]  # each [1, ...], in the order of the layout's parts


class AuxiliaryState:
    """One sequence's own row: every forward pass changes it in place, so nothing here is ever shared.

    Sequences that decode together have rows of one stack, which the next pass over just these takes as it is.
    """

    __slots__ = ("_row", "_stack", "length")

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.length = 0  # tokens it stands for
        self._stack: tuple[torch.Tensor, ...] | None = None
        self._row = 0
        if snapshot is not None:
            self.put(_copied(snapshot.tensors), snapshot.length)

    @property
    def tensors(self) -> tuple[torch.Tensor, ...] | None:
        """Views of its row, each [1, ...]; None until the first token was computed."""
        if self._stack is None:
            return None
        return tuple(tensor[self._row : self._row + 1] for tensor in self._stack)

    def snapshot(self) -> Snapshot:
        """A copy as it is now. There must be something computed."""
        tensors = self.tensors
        assert tensors is not None, "a state without a token has nothing to keep"
        return Snapshot(self.length, _copied(tensors))

    def clone(self) -> "AuxiliaryState":
        """A second row that goes its own way from here."""
        return AuxiliaryState(self.snapshot())

    def put(self, stack: tuple[torch.Tensor, ...], length: int, row: int = 0) -> None:
        """What it is after a forward pass: `row` of each of these tensors."""
        self._stack, self._row, self.length = stack, row, length


def stacked(states: Sequence[AuxiliaryState]) -> tuple[torch.Tensor, ...] | None:
    """The rows of all `states` in their order: their common stack where it is just that, else copies.

    None: there is one state, and it is empty. A single state is never copied.
    """
    stack = states[0]._stack
    rows_of_one = all(state._stack is stack and state._row == row for row, state in enumerate(states))
    if stack and rows_of_one and len(stack[0]) == len(states):
        return stack
    rows = [state.tensors for state in states]
    if len(rows) == 1:
        return rows[0]
    filled = [row for row in rows if row is not None]
    assert len(filled) == len(rows), "only sequences that hold state can be stacked"
    return tuple(torch.cat(parts) for parts in zip(*filled, strict=True))


def _copied(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors)
