"""A snapshot as one row of bytes in main memory, which is how tiers below the device keep it."""

import torch

from cache_core.tiers.files import aligned
from engine_adapters.embedded.state.auxiliary import Snapshot
from engine_adapters.embedded.state.layout import StateLayout


class StateRows:
    """Part follows part in the order of the layout; zeros fill the last page, so that disks read rows in place."""

    def __init__(self, layout: StateLayout, device: torch.device) -> None:
        self.row_bytes = aligned(layout.row_bytes)
        self._parts = layout.parts
        self._device = device

    def fits(self, snapshot: Snapshot) -> bool:
        """Whether its tensors are what the layout says."""
        found = [(tuple(tensor.shape), tensor.dtype) for tensor in snapshot.tensors]
        return found == [(part.shape, part.dtype) for part in self._parts]

    def empty(self, length: int) -> Snapshot:
        """Room on the device for a snapshot of that many tokens; its contents are undefined."""
        tensors = (torch.empty(part.shape, dtype=part.dtype, device=self._device) for part in self._parts)
        return Snapshot(length, tuple(tensors))

    def read(self, snapshot: Snapshot, row: torch.Tensor) -> None:
        """Copy it into `row`, uint8 [row_bytes]; on an accelerator the copy is queued on the current stream."""
        at = 0
        for tensor in snapshot.tensors:
            data = tensor.reshape(-1).view(torch.uint8)
            row[at : at + len(data)].copy_(data, non_blocking=True)
            at += len(data)
        row[at:] = 0

    def write(self, snapshot: Snapshot, row: torch.Tensor) -> None:
        """Fill one that `empty` gave, the way back of `read`."""
        at = 0
        for tensor in snapshot.tensors:
            data = tensor.view(-1).view(torch.uint8)
            data.copy_(row[at : at + len(data)], non_blocking=True)
            at += len(data)
