"""One conversation's part of the memory, opened for one request."""

from collections.abc import Mapping, Sequence
from typing import Any

from canon.memory.answer import Answer
from canon.memory.chain import Chain, ItemDigests, digest
from canon.memory.participants import conversation_root, outline, sharing_root
from canon.memory.records import (
    Pin,
    RecordedCalls,
    SessionState,
    answer_digests,
    append,
    calls_from,
    pins_from,
    sessions_from,
)
from canon.memory.store import MemoryStore
from canon.memory.tool_row import as_sent
from canon.memory.turns import items_of, opening, turns_of
from canon.requests.view import Kind

_LOOK_BACK = 16  # client turns that one request may add: a user turn, or results of parallel calls
_SESSIONS = 4  # conversations with the same user turns that are told apart
_PINS = 4
_CALLS = 8


class Conversation:
    """What was sent before in the conversation that a request continues.

    `session` names the conversation, where a client says so: then a turn sent again is a retry. Without it, it may as
    well be another conversation that began alike, and both notes are kept until the model's answers tell them apart.
    `needs_answers`: a note is repeated only in front of an answer that is known to have followed it.
    """

    def __init__(
        self,
        store: MemoryStore,
        kind: Kind,
        body: Mapping[str, Any],
        *,
        scope: str,
        session: str,
        rules_version: int,
        all_recorded: bool = False,
    ) -> None:
        self.store = store
        self.kind = kind
        self._session = session
        self.needs_answers = all_recorded and not session
        self._sharing = sharing_root(scope, body)
        self._client = conversation_root(scope, session, body)
        self._digests = ItemDigests()
        self._outline = outline(self._client, turns_of(kind, body), items_of(kind, body), self._digests)
        self._before = self._sessions_before()
        self.rules_version = self._before[-1].rules_version if self._before else rules_version

    def chain(self, body: Mapping[str, Any]) -> Chain:
        """A chain that has what stands before the turns of `body`, as it is sent."""
        root = digest("conversation", self._client, str(self.rules_version).encode())
        chain = Chain(root, self._digests)
        chain.add(opening(self.kind, body))
        return chain

    def tool_row(self, names: Sequence[str]) -> list[str]:
        """`names` in the order in which to send them: those sent before as they were sent, then the others as given."""
        return as_sent(names, [state.tools for state in self._before])

    def first_form(self, kind: str, value: bytes, text: str) -> str:
        """How a value was written when this scope first saw it; `value` is alike for all that mean the same."""
        key = digest("form", self._sharing, kind.encode(), value)
        if not self.store.compare_and_put(key, None, text.encode("utf-8", "surrogatepass")):
            first = self.store.get(key)
            return text if first is None else first.decode("utf-8", "surrogatepass")
        return text

    def pins(self, key: bytes) -> tuple[Pin, ...]:
        return pins_from(self.store.get(_pin_key(key)))

    def pin(self, key: bytes, pin: Pin) -> None:
        """Keep what the newest turn was sent with."""
        append(self.store, _pin_key(key), pin, pins_from, self._with_pin)

    def _with_pin(self, pins: tuple[Pin, ...], pin: Pin) -> tuple[Pin, ...]:
        if self._session:
            return (pin,)
        same = [other for other in pins if other.note == pin.note]
        if same:
            told = tuple(each for each in same[0].told if each in pin.told)
            return (*(other for other in pins if other.note != pin.note), Pin(pin.note, told))
        return (*pins, pin)[-_PINS:]

    def followed(self, head: bytes, answer: Answer) -> bool | None:
        """Whether the model answered so to what `head` stands for; None: no answer to it is known."""
        if self.store.get(_answer_key(head)) is None:
            return None
        return any(self.store.get(digest("said", head, each)) is not None for each in answer_digests(answer))

    def calls(self, head: bytes) -> tuple[RecordedCalls, ...]:
        """The calls that the model made in answers to what `head` stands for, the first ones first."""
        return calls_from(self.store.get(_answer_key(head)))

    def record(self, head: bytes, answer: Answer) -> None:
        """Keep what the model answered to what `head` stands for."""
        for each in answer_digests(answer):
            self.store.put(digest("said", head, each), b"")
        append(self.store, _answer_key(head), RecordedCalls(answer.calls), calls_from, _with_calls)

    def sent(self, tools: Sequence[str], head: bytes, *bodies: Mapping[str, Any]) -> None:
        """Keep what the next turn of this conversation asks for.

        `bodies` are the request as it came and as it was sent, and `head` stands for what was sent, so that an
        answer can be recorded under either.
        """
        if self._outline:
            state = SessionState(self.rules_version, tuple(tools))
            append(self.store, _session_key(self._outline[-1]), state, sessions_from, _with_session)
        for body in bodies:
            self.store.put(self._body_key(body), head)

    def head_of(self, body: Mapping[str, Any]) -> bytes:
        """Stands for a request's conversation, as it was sent; `body` may be as it came or as it was sent."""
        known = self.store.get(self._body_key(body))
        if known is not None:
            return known
        chain = self.chain(body)
        for item in items_of(self.kind, body):
            chain.add(item)
        return chain.head

    def _body_key(self, body: Mapping[str, Any]) -> bytes:
        chain = Chain(digest("body", self._client), self._digests)
        chain.add(opening(self.kind, body))
        for item in items_of(self.kind, body):
            chain.add(item)
        return chain.head

    def _sessions_before(self) -> tuple[SessionState, ...]:
        for key in self._outline[-2 : -2 - _LOOK_BACK : -1]:
            if states := sessions_from(self.store.get(_session_key(key))):
                return states
        return ()


def _with_session(states: tuple[SessionState, ...], state: SessionState) -> tuple[SessionState, ...]:
    return (*(other for other in states if other != state), state)[-_SESSIONS:]


def _with_calls(rows: tuple[RecordedCalls, ...], row: RecordedCalls) -> tuple[RecordedCalls, ...]:
    # The first ones stay: what was replayed once is replayed again.
    return rows if not row.calls or row in rows or len(rows) >= _CALLS else (*rows, row)


def _pin_key(head: bytes) -> bytes:
    return digest("pin", head)


def _answer_key(head: bytes) -> bytes:
    return digest("answer", head)


def _session_key(outline: bytes) -> bytes:
    return digest("session", outline)
