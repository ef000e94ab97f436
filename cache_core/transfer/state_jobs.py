"""Between host and device: one row of state, which is no block of the device tier."""

from collections.abc import Callable

import numpy as np
import torch

from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.state_groups import RowCopy, StateOnDevice
from cache_core.tiers.host import NO_ROW, HostTier
from cache_core.transfer.copy_lane import CopyLane
from cache_core.transfer.job import Job, Pending, Piece

Copy = Callable[[torch.Tensor], Pending | None]


class StateToHost(Job):
    """Copies a row into the host tier, if it is not there and there is room."""

    source: TierName = "device"
    target: TierName = "host"

    def __init__(self, host: HostTier, header: BlockHeader, state: StateOnDevice, lane: CopyLane) -> None:
        self._host = host
        self._held: tuple[StateOnDevice, Copy] | None = (state, lane.after_now(state.read))
        self._reservation = host.reserve([header])  # last of what can fail
        self._whole = np.zeros(1, dtype=np.bool_)
        there = int(self._reservation.rows[0]) != NO_ROW
        self.pieces = [Piece(host.block_bytes, self._copy)] if there else []

    def piece_done(self, index: int) -> None:
        self._whole[:] = True

    def finish(self, done: bool) -> None:
        self._held = None  # the device may have evicted it long ago
        self._host.publish(self._reservation, self._whole)

    def _copy(self) -> Pending | None:
        assert self._held is not None, "no piece is begun once a job is finished"
        _, copy = self._held
        return copy(torch.from_numpy(self._host.rows[int(self._reservation.rows[0])]))


class StateToDevice(Job):
    """Copies a row of the host tier to where `write` puts it. `there`: the host tier had it, whole."""

    source: TierName = "host"
    target: TierName = "device"

    def __init__(self, host: HostTier, header: BlockHeader, write: RowCopy, lane: CopyLane) -> None:
        self._host = host
        copy = lane.after_now(write)
        self._pinned = host.pin([header])  # last of what can fail
        row = int(self._pinned[0])
        self.there = row != NO_ROW
        if self.there:
            source = torch.from_numpy(host.rows[row])
            self.pieces = [Piece(host.block_bytes, lambda: copy(source))]
        else:
            self.pieces = []

    def finish(self, done: bool) -> None:
        self._host.unpin(self._pinned)
