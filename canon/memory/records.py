"""What the memory keeps about one turn, and how it is written down.

Records are JSON, so that replicas of different builds can share a store; one that cannot be read counts as none.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from canon.memory.answer import Answer, Call
from canon.memory.chain import digest, value_bytes
from canon.memory.store import MemoryStore

_TRIES = 5  # of a write that others get in between of
_TAIL = 32  # characters that two answers must have in common at their ends to be taken for the same

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Pin:
    """What a turn was sent with."""

    note: str | None  # the tail note; None: it needed none
    told: tuple[str, ...]  # digests of the moved values that the conversation has told the model by then


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """Tool calls of one answer, as the model wrote them."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class SessionState:
    """What a conversation was begun with, kept for its next turns."""

    rules_version: int
    tools: tuple[str, ...]  # names in the order in which they were sent
    slots: tuple[str, ...] = ()  # templates of the learned slots that act


@dataclass(frozen=True, slots=True)
class Sent:
    """What one request went out as."""

    head: str  # hex; stands for its whole conversation
    turn: str = ""  # hex; stands for its newest turn without a note; empty: it has none
    note: str | None = None  # of the newest turn
    told: tuple[str, ...] = ()


def answer_digests(answer: Answer) -> list[bytes]:
    """Digests that a client's assistant turn shares with the answer it is, give or take what clients strip.

    One is of the whole; the other only of the end of its text, which stays where thinking is cut out.
    """
    text = answer.text.strip()
    calls = value_bytes([[call.name, call.meaning()] for call in answer.calls])
    digests = [digest("answer", text.encode("utf-8", "surrogatepass"), calls)]
    if len(text) >= _TAIL:
        digests.append(digest("answer's end", text[-_TAIL:].encode("utf-8", "surrogatepass"), calls))
    return digests


def pins_from(data: bytes | None) -> tuple[Pin, ...]:
    return _read(data, lambda pin: Pin(pin["note"], tuple(pin["told"])))


def calls_from(data: bytes | None) -> tuple[RecordedCalls, ...]:
    return _read(data, lambda it: RecordedCalls(tuple(Call(**call) for call in it["calls"])))


def sessions_from(data: bytes | None) -> tuple[SessionState, ...]:
    return _read(data, lambda state: _session(state))


def _session(state: Any) -> SessionState:
    return SessionState(int(state["rules_version"]), tuple(state["tools"]), tuple(state.get("slots", ())))


def sent_from(data: bytes | None) -> tuple[Sent, ...]:
    return _read(data, lambda it: Sent(it["head"], it["turn"], it["note"], tuple(it["told"])))


def dump(records: Sequence[Any]) -> bytes:
    return _encode(records).encode()


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


_encode = json.JSONEncoder(separators=(",", ":"), default=_fields).encode


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
