"""What was learned of a scope's lines, kept in the memory's store."""

from collections.abc import Sequence

from canon.memory.chain import digest, value_bytes
from canon.memory.store import MemoryStore
from canon.slots import Slot, SlotLearner, SlotSource


class StoredSlots(SlotSource):
    """Loads what was learned only for lines that were not seen before, and stores it where it changed.

    Replicas that learn at the same moment may lose each other's step; the next request teaches it again.
    """

    def __init__(self, store: MemoryStore, sharing: bytes, kind: str, confirmations: int) -> None:
        self._store = store
        self._confirmations = confirmations
        self._learner_key = digest("slots", sharing, kind.encode())
        self._confirmed_key = digest("slots that may act", sharing, kind.encode())

    def confirmed(self) -> frozenset[str]:
        data = self._store.get(self._confirmed_key)
        return frozenset(data.decode("utf-8", "surrogatepass").split("\n")) if data else frozenset()

    def observe(self, lines: Sequence[str]) -> list[Slot]:
        seen_key = digest("slots seen", self._learner_key, value_bytes(list(lines)))
        if self._store.get(seen_key) is not None:
            return []
        learner = SlotLearner.load(self._store.get(self._learner_key), self._confirmations)
        before = learner.confirmed()
        slots = learner.observe(lines)
        if learner.changed:
            self._store.put(self._learner_key, learner.dump())
        if (confirmed := learner.confirmed()) != before:
            self._store.put(
                self._confirmed_key, "\n".join(sorted(confirmed)).encode("utf-8", "surrogatepass")
            )
        if not slots:
            self._store.put(seen_key, b"1")  # nothing in these lines is worth another look
        return [slot for slot in slots if learner.is_confirmed(slot)]
