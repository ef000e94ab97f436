"""Long prompts are hashed once: what was seen before is compared, which takes a fraction of the time."""

from collections import OrderedDict
from threading import Lock

from gateway.routing.chain import CHUNK, UNIT, chunk_digests

RUN = 16 * CHUNK  # tokens that are remembered together; shorter prompts are hashed sooner than looked up

_RUN_BYTES = RUN * UNIT
_NAMED = 64  # bytes at a run's end, by which it is looked for
_MOST = 32 << 20  # bytes


class KnownRuns:
    """Runs of whole chunks with their digests, the least recently used ones given up. Thread-safe.

    A run is taken for known only where all that is before it has the same digest and all of its own bytes are the
    same, so digests are always those of `chunk_digests`. They begin with a prompt's seed: nothing that is known under
    one is found, or is any faster, under another.
    """

    def __init__(self, most_bytes: int = _MOST) -> None:
        self._room = most_bytes // _RUN_BYTES  # runs
        self._runs: OrderedDict[bytes, tuple[bytes, list[bytes]]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def digests(self, parent: bytes, data: memoryview) -> list[bytes]:
        """As `chunk_digests` has them."""
        if len(data) < _RUN_BYTES:
            return chunk_digests(parent, data)
        last, found = parent, list[bytes]()
        whole = len(data) - len(data) % _RUN_BYTES
        for at in range(0, whole, _RUN_BYTES):
            found += self._of_run(last, bytes(data[at : at + _RUN_BYTES]))
            last = found[-1]
        return found + chunk_digests(last, data[whole:])

    def clear(self) -> int:
        """Forget all runs; how many there were."""
        with self._lock:
            count = len(self._runs)
            self._runs.clear()
        return count

    def _of_run(self, parent: bytes, run: bytes) -> list[bytes]:
        name = parent + run[-_NAMED:]
        with self._lock:
            known = self._runs.get(name)
            if known is not None:
                self._runs.move_to_end(name)
        if known is not None and known[0] == run:
            return known[1]
        digests = chunk_digests(parent, run)
        with self._lock:
            self._runs[name] = run, digests
            if len(self._runs) > self._room:
                self._runs.popitem(last=False)
        return digests
