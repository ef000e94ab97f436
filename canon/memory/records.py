"""What the memory keeps about one turn, and how it is written down.

Records are JSON, so that replicas of different builds can share a store; one that cannot be read counts as none.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from canon.memory.answer import Answer, Call
from canon.memory.chain import digest
from canon.memory.store import MemoryStore

_TRIES = 5  # of a write that others get in between of
_SURE_TAIL = 16  # characters that two answers must have in common at their ends to be taken for the same
_TAIL = 64

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Pin:
    """What a turn was sent with."""

    note: str | None  # the tail note; None: it needed none
    told: tuple[str, ...]  # digests of the moved values that the conversation has told the model by then


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What the model answered to exactly what was sent; of its text only digests."""

    text: str
    tail: str | None  # clients that cut thinking out keep the end; None: too short to say anything
    calls: tuple[Call, ...]

    def fits(self, answer: Answer) -> bool:
        """Whether a client's assistant turn is this one, give or take what clients strip."""
        if not Answer("", self.calls).same_calls(answer):
            return False
        return self.text == _text_digest(answer.text) or (
            self.tail is not None and self.tail == _tail_digest(answer.text)
        )


@dataclass(frozen=True, slots=True)
class SessionState:
    """What a conversation was begun with, kept for its next turns."""

    rules_version: int
    tools: tuple[str, ...]  # names in the order in which they were sent


def recorded(answer: Answer) -> RecordedAnswer:
    return RecordedAnswer(_text_digest(answer.text), _tail_digest(answer.text), answer.calls)


def pins_from(data: bytes | None) -> tuple[Pin, ...]:
    return _read(data, lambda pin: Pin(pin["note"], tuple(pin["told"])))


def answers_from(data: bytes | None) -> tuple[RecordedAnswer, ...]:
    return _read(
        data, lambda it: RecordedAnswer(it["text"], it["tail"], tuple(Call(**call) for call in it["calls"]))
    )


def sessions_from(data: bytes | None) -> tuple[SessionState, ...]:
    return _read(data, lambda state: SessionState(int(state["rules_version"]), tuple(state["tools"])))


def dump(records: Sequence[Any]) -> bytes:
    return json.dumps([asdict(record) for record in records], separators=(",", ":")).encode()


def append(
    store: MemoryStore,
    key: bytes,
    record: Record,
    read: Callable[[bytes | None], tuple[Record, ...]],
    keep: Callable[[tuple[Record, ...], Record], tuple[Record, ...]],
) -> None:
    """Set what `keep` makes of the records that are there and the new one; others' writes in between are kept."""
    for _ in range(_TRIES):
        data = store.get(key)
        there = read(data)
        wanted = keep(there, record)
        if wanted == there and data is not None:
            return
        if store.compare_and_put(key, data, dump(wanted)):
            return


def _read(data: bytes | None, build: Callable[[Any], Record]) -> tuple[Record, ...]:
    if data is None:
        return ()
    try:
        return tuple(build(each) for each in json.loads(data))
    except (ValueError, KeyError, TypeError):
        return ()  # another build's form


def _text_digest(text: str) -> str:
    return digest("answer text", text.strip().encode("utf-8", "surrogatepass")).hex()[:32]


def _tail_digest(text: str) -> str | None:
    tail = text.strip()[-_TAIL:]
    if len(tail) < _SURE_TAIL:
        return None
    return digest("answer tail", tail.encode("utf-8", "surrogatepass")).hex()[:32]
