"""Between host and device: loads layer by layer, write-backs block by block."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from cache_core.block_header import BlockHeader
from cache_core.block_pool import Blocks
from cache_core.device_tier import DeviceTier
from cache_core.metrics import TierName
from cache_core.tiers.host import NO_ROW, HostTier
from cache_core.transfer.copy_lane import CopyLane
from cache_core.transfer.job import Job, Piece

PIECE_BYTES = 8 << 20  # about a millisecond of a slow link: what an urgent transfer or a cancel waits for
_LEAST_BYTES = 4 << 20  # smaller pieces cost more than they move
_FIRST_BYTES = 1 << 20  # but the first layers should be there soon
_LEAST_ROW = 256 << 10  # bytes of one block in one piece, on an accelerator: one copy call for each

_NONE: Blocks = np.empty(0, dtype=np.int32)

LetGo = Callable[[bool], None]  # told once whether the job was done; lets go of the device blocks


class HostToDevice(Job):
    """Loads the leading blocks that are in the host tier into device blocks, layer after layer.

    `blocks[:count]` are written; the caller keeps all of them pinned until `let_go` is called.
    """

    source: TierName = "host"
    target: TierName = "device"

    def __init__(
        self,
        host: HostTier,
        device: DeviceTier,
        headers: Sequence[BlockHeader],
        blocks: Blocks,
        lane: CopyLane,
        let_go: LetGo | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        if len(headers) != len(blocks):
            raise ValueError(f"{len(headers)} headers for {len(blocks)} device blocks")
        _require_fit(host, device)
        self._host, self._let_go = host, let_go
        arena, rows, targets = torch.from_numpy(host.rows), _NONE, _NONE
        write = lane.after_now(
            lambda part, layers: device.write_blocks(targets[part], arena, rows[part], layers)
        )
        self._pinned = host.pin(headers)  # last of what can fail
        missing = np.flatnonzero(self._pinned == NO_ROW)
        self.count = int(missing[0]) if len(missing) else len(headers)  # leading blocks that come up
        rows, targets = self._pinned[: self.count], blocks[: self.count].copy()
        pieces: list[Piece] = []
        ends: list[int] = []
        for layers in _layer_parts(device, self.count) if self.count else ():
            first, last = device.layer_bytes(layers)
            for part in _block_parts(self.count, last - first, piece_bytes):
                nbytes = (part.stop - part.start) * (last - first)
                pieces.append(Piece(nbytes, lambda part=part, layers=layers: write(part, layers)))  # type: ignore[misc]
            ends.extend([len(pieces)] * len(layers))
        self.pieces, self.layer_ends = pieces, ends

    def finish(self, done: bool) -> None:
        self._host.unpin(self._pinned)
        if self._let_go is not None:
            self._let_go(done)


class DeviceToHost(Job):
    """Copies device blocks into the host tier, as far as they are not there and there is room.

    The caller keeps `blocks` pinned until `let_go` is called. Blocks that arrived count, whatever became of
    the rest.
    """

    source: TierName = "device"
    target: TierName = "host"

    def __init__(
        self,
        device: DeviceTier,
        host: HostTier,
        headers: Sequence[BlockHeader],
        blocks: Blocks,
        lane: CopyLane,
        let_go: LetGo | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        if len(headers) != len(blocks):
            raise ValueError(f"{len(headers)} headers for {len(blocks)} device blocks")
        _require_fit(host, device)
        self._host, self._let_go = host, let_go
        arena, rows, sources = torch.from_numpy(host.rows), _NONE, _NONE
        read = lane.after_now(
            lambda part, layers: device.read_blocks(sources[part], arena, rows[part], layers)
        )
        self._reservation = host.reserve(headers)  # last of what can fail
        self._whole = np.zeros(len(headers), dtype=np.bool_)
        self._places = np.flatnonzero(self._reservation.rows != NO_ROW)
        rows, sources = self._reservation.rows[self._places], blocks[self._places]
        self._parts = _block_parts(len(rows), host.block_bytes, piece_bytes)
        self.pieces = [
            Piece((part.stop - part.start) * host.block_bytes, lambda part=part: read(part, None))  # type: ignore[misc]
            for part in self._parts
        ]

    def piece_done(self, index: int) -> None:
        self._whole[self._places[self._parts[index]]] = True

    def finish(self, done: bool) -> None:
        try:
            self._host.publish(self._reservation, self._whole)
        finally:
            if self._let_go is not None:
                self._let_go(done)


def _require_fit(host: HostTier, device: DeviceTier) -> None:
    if host.block_bytes != device.bytes_per_block:
        raise ValueError(
            f"host blocks of {host.block_bytes} bytes, device blocks of {device.bytes_per_block}"
        )


def _layer_parts(device: DeviceTier, blocks: int) -> list[range]:
    """Layers that come up together: as few as are worth a piece, the first ones soonest."""
    row = 1 if device.device.type == "cpu" else _LEAST_ROW
    parts: list[range] = []
    start, layers = 0, len(device.layers)
    for stop in range(1, layers + 1):
        first, last = device.layer_bytes(range(start, stop))
        least = _LEAST_BYTES if parts else _FIRST_BYTES
        if (last - first) * blocks >= max(least, row * blocks) or stop == layers:
            parts.append(range(start, stop))
            start = stop
    return parts


def _block_parts(blocks: int, each: int, piece_bytes: int) -> list[slice]:
    """`blocks` in even parts of at most `piece_bytes`, or of one block."""
    if not blocks:
        return []
    most = max(piece_bytes // each, 1)
    step = -(-blocks // -(-blocks // most))
    return [slice(start, min(start + step, blocks)) for start in range(0, blocks, step)]
