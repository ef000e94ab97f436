"""The snapshots on the device, as the tiers below see them: rows that go down, and room for what comes up."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from cache_core.state_groups import DeviceStates, StateLanding, StateOnDevice
from cache_core.tokens import Tokens
from engine_adapters.embedded.state.auxiliary import Snapshot
from engine_adapters.embedded.state.snapshot_store import SnapshotStore
from engine_adapters.embedded.state.state_rows import StateRows

log = logging.getLogger("kvgate.engine")


class SnapshotsOnDevice(DeviceStates):
    """Any thread may call, as with the store."""

    def __init__(self, store: SnapshotStore, rows: StateRows) -> None:
        self.rows = rows
        self._store = store
        self._told = False

    def along(self, tokens: Tokens, scope: str) -> list[StateOnDevice]:
        return [self.on_device(each) for each in self._store.along(tokens, scope) if self._fits(each)]

    def on_device(self, snapshot: Snapshot) -> StateOnDevice:
        """One snapshot, to be copied."""
        return StateOnDevice(snapshot.length, partial(self.rows.read, snapshot))

    def tell_evicted(self, leaves: Callable[[Tokens, str, StateOnDevice], None]) -> None:
        """From now on `leaves` is called, quick as it must be, with what the store drops to make room."""

        def evicted(tokens: Tokens, scope: str, snapshot: Snapshot) -> None:
            if self._fits(snapshot):
                leaves(tokens, scope, self.on_device(snapshot))

        self._store.on_evict = evicted

    def deepest(self, tokens: Tokens, scope: str, limit: int) -> int:
        return self._store.deepest(tokens, scope, limit)

    def landing(self, tokens: Tokens, scope: str) -> StateLanding:
        flushes = self._store.flushes
        return _Landing(tokens.copy(), scope, self.rows.empty(len(tokens)), flushes, self._store, self.rows)

    def forget(self, scope: str | None) -> int:
        return self._store.flush(scope)

    def _fits(self, snapshot: Snapshot) -> bool:
        fits = self.rows.fits(snapshot)
        if not fits and not self._told:
            self._told = True
            log.warning("a state is not what this model's were at load, so such states stay on the device")
        return fits


@dataclass(frozen=True, slots=True)
class _Landing(StateLanding):
    tokens: Tokens
    scope: str
    snapshot: Snapshot
    flushes: int  # of the store, when it was made
    store: SnapshotStore
    rows: StateRows

    def write(self, row: torch.Tensor) -> None:
        self.rows.write(self.snapshot, row)

    def keep(self) -> None:
        self.store.put(self.tokens, self.scope, self.snapshot, self.flushes)
