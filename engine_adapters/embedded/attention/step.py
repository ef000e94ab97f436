"""One packed forward pass over the cache: where each token goes, and which keys it sees."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cache_core.device_tier import DeviceTier
from engine_adapters.embedded.attention.interface import AttentionContext, LayerCall, ModelKeywords
from engine_adapters.embedded.attention.segment import Segment
from engine_adapters.embedded.attention.spans import Span, key_spans


@dataclass(frozen=True, slots=True)
class StepLayout:
    """The step's tokens, packed along one axis of T, computed once for all layers."""

    segments: tuple[Segment, ...]
    starts: NDArray[np.int64]  # [segments] first row of each
    positions: NDArray[np.int64]  # [T] position of each token in its own sequence
    slots: NDArray[np.int64]  # [T] where its KV is written
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """T, the step's tokens."""
        return len(self.positions)

    def rows(self, segment: int) -> range:
        """Rows of one segment's new tokens."""
        start = int(self.starts[segment])
        return range(start, start + self.segments[segment].size)


def lay_out(segments: Sequence[Segment], block_size: int) -> StepLayout:
    """Pack the segments.

    Raises:
        ValueError: an empty segment, or a page table too short for it.
    """
    for segment in segments:
        if segment.size < 1 or segment.past < 0:
            raise ValueError("a segment holds at least one token and no negative past")
        if len(segment.blocks) * block_size < segment.length:
            raise ValueError(f"{len(segment.blocks)} blocks cannot hold {segment.length} tokens")
    sizes = np.array([segment.size for segment in segments], dtype=np.int64)
    positions = [np.arange(segment.past, segment.length) for segment in segments]
    slots = [
        segment.blocks[at // block_size].astype(np.int64) * block_size + at % block_size
        for segment, at in zip(segments, positions, strict=True)
    ]
    return StepLayout(
        segments=tuple(segments),
        starts=np.cumsum(sizes) - sizes,
        positions=np.concatenate(positions),
        slots=np.concatenate(slots),
        spans=tuple(key_spans(segments, block_size)),
    )


class AttentionBackend(ABC):
    """One way to compute attention over the pages of a device tier."""

    name: str

    @abstractmethod
    def plan(self, layout: StepLayout, tier: DeviceTier, window: int | None) -> Any:
        """Everything that is the same for all layers with this window (tokens; None: all keys are seen)."""

    @abstractmethod
    def attend(self, plan: Any, tier: DeviceTier, call: LayerCall) -> torch.Tensor:
        """Write the call's keys and values to their slots, then attend: [1, T, heads, value_dim]."""


class Step(AttentionContext):
    """The context of one forward pass. `windows[layer]` is that layer's sliding window, as found at load."""

    def __init__(
        self,
        segments: Sequence[Segment],
        tier: DeviceTier,
        windows: Sequence[int | None],
        backend: AttentionBackend,
    ) -> None:
        self.layout = lay_out(segments, tier.block_size)
        self._tier = tier
        self._windows = windows
        self._backend = backend
        self._plans: dict[int | None, Any] = {}
        self._arrivals = [segment.arrival for segment in segments if segment.arrival is not None]
        self._longest = max(segment.length for segment in segments)

    def attend(self, call: LayerCall, seen: ModelKeywords) -> torch.Tensor:
        if self._arrivals:
            # Of those that do not come, nothing is waited for any more, and no other segment reads their rows.
            self._arrivals = [arrival for arrival in self._arrivals if arrival.wait_layer(call.layer)]
        return self._backend.attend(self._plan(call.layer), self._tier, call)

    def _plan(self, layer: int) -> Any:
        window = self._windows[layer]
        if window is not None and window >= self._longest:
            window = None  # nothing is out of sight yet
        if window not in self._plans:
            self._plans[window] = self._backend.plan(self.layout, self._tier, window)
        return self._plans[window]
