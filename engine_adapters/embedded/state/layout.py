"""Where a hybrid model's states are, and how they get into and out of a forward pass."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from engine_adapters.embedded.state.auxiliary import AuxiliaryState, stacked
from engine_adapters.embedded.state.cache_layers import LayerKind, make_cache

Name = Literal["conv", "recurrent"]


@dataclass(frozen=True, slots=True)
class StatePart:
    """One tensor of a row."""

    layer: int  # of the model
    name: Name
    index: int  # among the states of its layer
    shape: tuple[int, ...]  # of one sequence's, [1, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of one sequence's."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class StateLayout:
    """What each layer of the model keeps, and the tensors that make a row of state."""

    kinds: tuple[LayerKind, ...]
    parts: tuple[StatePart, ...]
    single_steps: bool = False  # the model goes on from a state right only by one token at a time

    @classmethod
    def found_in(cls, kinds: tuple[LayerKind, ...], cache: Any) -> "StateLayout":
        """The parts that a forward pass of one sequence left in `cache`."""
        return cls(kinds, tuple(_parts(kinds, cache)))

    @property
    def silent(self) -> tuple[int, ...]:
        """Layers that should keep states, and left none."""
        with_parts = {part.layer for part in self.parts}
        return tuple(i for i, kind in enumerate(self.kinds) if kind.states and i not in with_parts)

    @property
    def row_bytes(self) -> int:
        """Bytes of one sequence's state."""
        return sum(part.nbytes for part in self.parts)

    @property
    def described(self) -> str:
        """What the bytes of a row mean, as part of what makes them interchangeable."""
        parts = (f"{p.layer}.{p.name}.{p.index}: {p.dtype} {list(p.shape)}" for p in self.parts)
        return "; ".join(parts)

    def load(self, states: Sequence[AuxiliaryState]) -> Any:
        """A cache for a forward pass over these sequences: one that is empty, or some that all hold state.

        The pass changes the states in place: they are good for nothing until `store`.
        """
        cache = make_cache(self.kinds, max(state.length for state in states))
        for part, tensor in zip(self.parts, stacked(states) or (), strict=False):
            _put(cache.layers[part.layer], part, tensor)
        return cache

    def store(self, cache: Any, states: Sequence[AuxiliaryState], lengths: Sequence[int]) -> None:
        """Give each sequence its row of what a forward pass left in `cache`."""
        stack = tuple(_get(cache.layers[part.layer], part) for part in self.parts)
        for row, (state, length) in enumerate(zip(states, lengths, strict=True)):
            state.put(stack, length, row)


def _parts(kinds: tuple[LayerKind, ...], cache: Any) -> list[StatePart]:
    found: list[StatePart] = []
    names: tuple[Name, ...] = ("conv", "recurrent")
    for number, kind in enumerate(kinds):
        for index in range(kind.states):
            for name in names:
                tensor = getattr(cache.layers[number], f"{name}_states")[index]
                if tensor is not None:
                    found.append(StatePart(number, name, index, tuple(tensor.shape), tensor.dtype))
    return found


def _get(layer: Any, part: StatePart) -> torch.Tensor:
    tensor: torch.Tensor = getattr(layer, f"{part.name}_states")[part.index]
    return tensor


def _put(layer: Any, part: StatePart, tensor: torch.Tensor) -> None:
    """What the layer's own first update would do, without its copy."""
    getattr(layer, f"{part.name}_states")[part.index] = tensor
    getattr(layer, f"is_{part.name}_states_initialized")[part.index] = True
    layer.device, layer.dtype = tensor.device, tensor.dtype
    layer.has_previous_state[part.index] = True
    if part.name == "conv":
        layer.conv_kernel_size[part.index] = tensor.shape[-1]
