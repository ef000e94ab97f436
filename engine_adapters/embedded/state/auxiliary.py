"""The state of one sequence, and a copy of it that many may start from."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state behind the first `length` tokens of a prompt. Nobody writes to its tensors."""

    length: int
    tensors: tuple[torch.Tensor, ...]  # each [1, ...], in the order of the layout's parts


class AuxiliaryState:
    """One sequence's own row: every forward pass changes it in place, so nothing here is ever shared.

    `tensors` are None until the first token was computed.
    """

    __slots__ = ("length", "tensors")

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.length = 0  # tokens it stands for
        self.tensors: tuple[torch.Tensor, ...] | None = None
        if snapshot is not None:
            self.length = snapshot.length
            self.tensors = _copied(snapshot.tensors)

    def snapshot(self) -> Snapshot:
        """A copy as it is now. There must be something computed."""
        assert self.tensors is not None, "a state without a token has nothing to keep"
        return Snapshot(self.length, _copied(self.tensors))

    def clone(self) -> "AuxiliaryState":
        """A second row that goes its own way from here."""
        return AuxiliaryState(self.snapshot())

    def put(self, tensors: tuple[torch.Tensor, ...], length: int) -> None:
        """What it is after a forward pass."""
        self.tensors = tensors
        self.length = length


def _copied(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors)
