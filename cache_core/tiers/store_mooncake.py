"""The store tier in Mooncake Store: objects in the memory of many machines, found through one master.

Names: `kvgate/<mark of the MAC key>/<identity, hex>/<rest of the key, hex>`. The mark keeps users with different keys
out of each other's way. Values never change there, and a put under a name that is taken is ignored without a word: a
bad object must be removed before a good one can take its place, which whoever reads it first does.
"""

import hashlib
import hmac
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol, cast

import numpy as np

from cache_core.block_header import KEY_IDENTITY_BYTES
from cache_core.drop_reason import DropReason
from cache_core.memory import anonymous_memory
from cache_core.metrics import CacheObserver
from cache_core.tiers.base import FULL, GoesOn, Mask, TierStats, Watermarks, for_ever
from cache_core.tiers.codec import Codec
from cache_core.tiers.errors import PurgeFailedError, TierError
from cache_core.tiers.io_threads import IoThreads
from cache_core.tiers.store import Record, StoreTier, require_secret

log = logging.getLogger(__name__)

# What its calls return where they fail (ErrorCode in its types.h).
_NO_SPACE, _TOO_SMALL, _NOT_FOUND = -200, -600, -704
_REASONS = {_NO_SPACE: DropReason.NO_ROOM, _TOO_SMALL: DropReason.FOREIGN, _NOT_FOUND: DropReason.MISSING}
_CONNECTING = 2.0  # seconds; without a master, the client itself would try for a minute and a half
_PURGE_TRIES = 5  # writers elsewhere may put something while it is removed

Addresses = list[int]


class MooncakeClient(Protocol):
    """What is used of `mooncake.store.MooncakeDistributedStore`. Codes: 0, or a size, or a negative error."""

    def batch_is_exist(self, keys: list[str]) -> list[int]: ...
    def batch_put_from(self, keys: list[str], buffer_ptrs: Addresses, sizes: list[int]) -> list[int]: ...
    def batch_get_into(self, keys: list[str], buffer_ptrs: Addresses, sizes: list[int]) -> list[int]: ...
    def batch_remove(self, keys: list[str], force: bool) -> list[int]: ...
    def remove_by_regex(self, regex_pattern: str, force: bool) -> int: ...
    def register_buffer(self, buffer_ptr: int, size: int) -> int: ...
    def unregister_buffer(self, buffer_ptr: int) -> int: ...
    def close(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MooncakeOptions:
    """Everything about Mooncake Store that can be chosen."""

    master: str  # host:port
    mac_key: bytes  # shared by all users of the store and by nobody else, at least 16 bytes
    host: str = "127.0.0.1"  # this machine, as the others reach it
    segment_bytes: int = 0  # memory this process gives to the store; somebody has to give some
    staging_bytes: int = 16 << 20  # of each of `parallel` workers
    parallel: int = 4  # batches on their way at once
    patience: float = 1.0  # seconds to be told what is there; after that, nothing is
    protocol: str = "tcp"  # or rdma
    device: str = ""  # for rdma
    metadata: str = "P2PHANDSHAKE"  # or a metadata server's address
    codec: Codec = field(default_factory=Codec)

    def __post_init__(self) -> None:
        require_secret(self.mac_key)
        if self.parallel < 1 or self.staging_bytes < 1 or self.segment_bytes < 0:
            raise ValueError("workers and their staging are at least one, a segment is no less than nothing")
        address(self.master)


class StoreMooncake(StoreTier):
    """Blocks in a Mooncake Store shared with other processes and machines.

    A master that is away is a counted drop for every block, and the client finds it again when it is back, without
    what it held. What makes room in a full store is the master's own eviction.
    """

    def __init__(
        self,
        options: MooncakeOptions,
        observer: CacheObserver | None = None,
        connect: "Callable[[MooncakeOptions], MooncakeClient] | None" = None,
    ) -> None:
        """Join the store; `connect` puts another client in the place of the real one.

        Raises:
            TierError: Mooncake is not installed, the master cannot be reached, or the memory is refused.
        """
        super().__init__(options.codec, options.mac_key, options.parallel, observer)
        self.options = options
        self._client = (connect or connected)(options)
        mark = hmac.new(options.mac_key, b"kvgate store names", hashlib.sha256).hexdigest()[:16]
        self._prefix = f"kvgate/{mark}/"
        self._own = threading.local()  # a worker's staging
        self._asking = IoThreads(options.parallel, "kvgate-store-ask")
        self._banned: set[bytes] = set()  # identities that were purged while they could not be erased

    def contains(self, keys: Sequence[bytes]) -> Mask:
        if not keys:
            return np.zeros(0, dtype=np.bool_)
        asked = self._asking.submit(self._client.batch_is_exist, [self._name(key) for key in keys])
        done, _ = wait([asked], self.options.patience)
        if not done:
            asked.cancel()
            self._asking.set_aside()
            self._counters.drop(DropReason.SLOW, len(keys))
            return np.zeros(len(keys), dtype=np.bool_)
        codes = asked.result()
        failed = sum(code < 0 for code in codes)
        self._counters.drop(DropReason.IO_ERROR, failed)
        return np.array(
            [c == 1 and not self._is_banned(k) for k, c in zip(keys, codes, strict=True)], np.bool_
        )

    def probe(self) -> None:
        (code,) = self._client.batch_is_exist([f"{self._prefix}probe"])
        if code < 0:
            raise TierError(f"the Mooncake master at {self.options.master} does not answer (code {code})")

    def touch(self, keys: Sequence[bytes]) -> None:
        """Nothing: reading and asking count as use there."""

    def purge(self, identity: bytes) -> int:
        """As every tier's. Other users of the store must be told too: they may have blocks on their way.

        Raises:
            PurgeFailedError: the master is away. Nothing of it is served here until a `clean` has removed it.
        """
        self._purge_begins(identity)
        found, self._banned = 0, self._banned | {identity}
        for _ in range(_PURGE_TRIES):
            removed = self._client.remove_by_regex(f"^{self._folder(identity)}.*$", True)
            if removed < 0:
                raise PurgeFailedError(
                    f"the Mooncake master at {self.options.master} did not remove a purged identity "
                    f"(code {removed}); purge again when it is back"
                )
            found += removed
            if not removed:
                self._banned = self._banned - {identity}
                return found
        raise PurgeFailedError("others keep storing blocks of a purged identity: tell them first")

    def clean(self, goes_on: GoesOn = for_ever, marks: Watermarks = FULL) -> int:
        """Purge what could not be purged before. Room is the master's to make: it has watermarks of its own."""
        for identity in self._banned:
            if not goes_on():
                break
            try:
                self.purge(identity)
            except PurgeFailedError as error:
                log.debug("%s", error)
        return 0

    def stats(self) -> TierStats:
        return self._counters.snapshot(None, None, self.options.segment_bytes, evicts=False)

    def close(self) -> None:
        """As every tier's. Waits for calls under way, which the client must outlive: half a minute if it hangs."""
        for workers in (self._pool, self._asking):
            workers.close(wait=True)
        self._client.close()

    def _together(self, block_bytes: int) -> int:
        return max(self.options.staging_bytes // max(block_bytes, 1), 1)

    def _write(self, keys: Sequence[bytes], records: Sequence[Record]) -> list[DropReason | None]:
        sizes = [len(head) + len(body.data) for head, body in records]
        staging = self._staging(max(sizes), len(records))
        for place, (head, body) in enumerate(records):
            row = staging.row(place)
            row[: len(head)] = head
            row[len(head) : sizes[place]] = memoryview(body.data).cast("B")
        names = [self._name(key) for key in keys]
        codes = self._client.batch_put_from(names, staging.addresses(len(keys)), sizes)
        return [None if code >= 0 else _reason(code) for code in codes]

    def _read(self, keys: Sequence[bytes], limit: int) -> list[memoryview | DropReason]:
        staging = self._staging(limit, len(keys))
        names = [self._name(key) for key in keys]
        codes = self._client.batch_get_into(names, staging.addresses(len(keys)), [limit] * len(keys))
        self._discard([key for key, code in zip(keys, codes, strict=True) if code == _TOO_SMALL])
        return [
            self._found(staging.row(place)[: max(code, 0)], code, keys[place])
            for place, code in enumerate(codes)
        ]

    def _found(self, record: memoryview, code: int, key: bytes) -> memoryview | DropReason:
        if code < 0:
            return _reason(code)
        return DropReason.PURGED if self._is_banned(key) else record

    def _discard(self, keys: Sequence[bytes]) -> int:
        if not keys:
            return 0
        codes = self._client.batch_remove([self._name(key) for key in keys], True)
        return sum(code == 0 for code in codes)

    def _staging(self, row_bytes: int, rows: int) -> "_Staging":
        staging: _Staging | None = getattr(self._own, "staging", None)
        if staging is None:
            staging = self._own.staging = _Staging(self._client)
        staging.fit(row_bytes, rows)
        return staging

    def _is_banned(self, key: bytes) -> bool:
        return any(identity.startswith(key[:KEY_IDENTITY_BYTES]) for identity in self._banned)

    def _folder(self, identity: bytes) -> str:
        return f"{self._prefix}{identity[:KEY_IDENTITY_BYTES].hex()}/"

    def _name(self, key: bytes) -> str:
        return self._folder(key) + key[KEY_IDENTITY_BYTES:].hex()


class _Staging:
    """Memory of one worker that the client may read and write directly, in rows of one size."""

    def __init__(self, client: MooncakeClient) -> None:
        self._client = client
        self._memory = np.empty(0, dtype=np.uint8)
        self._row_bytes = 0

    def fit(self, row_bytes: int, rows: int) -> None:
        """Make room for that many rows; what was there is gone."""
        self._row_bytes = -(-row_bytes // 64) * 64
        needed = self._row_bytes * rows
        if needed > len(self._memory):
            if len(self._memory):
                self._client.unregister_buffer(self._memory.ctypes.data)
            self._memory = anonymous_memory(needed)
            self._client.register_buffer(self._memory.ctypes.data, needed)

    def row(self, place: int) -> memoryview:
        return self._memory.data[place * self._row_bytes : (place + 1) * self._row_bytes]

    def addresses(self, rows: int) -> Addresses:
        return [self._memory.ctypes.data + place * self._row_bytes for place in range(rows)]


def connected(options: MooncakeOptions) -> MooncakeClient:
    """A client of the real store.

    Raises:
        TierError: see `StoreMooncake`.
    """
    try:
        module = import_module("mooncake.store")
    except ImportError as error:  # a missing system library, too
        raise TierError(
            f"Mooncake Store cannot be used: {error}. Install kvgate[mooncake], and from the system libibverbs1, "
            "libnl-3-200 and libnl-route-3-200 (Debian's names)."
        ) from error
    try:
        socket.create_connection(address(options.master), _CONNECTING).close()
    except OSError as error:
        raise TierError(
            f"No Mooncake master answers at {options.master}: {error}. Start it first."
        ) from error
    client = module.MooncakeDistributedStore()
    code = client.setup(
        options.host,
        options.metadata,
        options.segment_bytes,
        options.staging_bytes,
        options.protocol,
        options.device,
        options.master,
    )
    if code:
        raise TierError(f"Mooncake Store at {options.master} did not take this process in (code {code})")
    return cast(MooncakeClient, client)


def address(stated: str) -> tuple[str, int]:
    """A master's host and port.

    Raises:
        ValueError: it is no host:port.
    """
    host, _, port = stated.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"a Mooncake master is stated as host:port, not {stated!r}")
    return host.strip("[]"), int(port)


def _reason(code: int) -> DropReason:
    return _REASONS.get(code, DropReason.IO_ERROR)
