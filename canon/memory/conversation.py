"""One conversation's part of the memory, opened for one request."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from canon.memory.answer import Answer
from canon.memory.chain import Chain, ItemDigests, digest
from canon.memory.participants import conversation_root, outline, sharing_root
from canon.memory.records import (
    Pin,
    RecordedCalls,
    Sent,
    SessionState,
    answer_digests,
    append,
    calls_from,
    dump,
    pins_from,
    sent_from,
    sessions_from,
)
from canon.memory.store import MemoryStore
from canon.memory.stored_slots import StoredSlots
from canon.memory.tool_row import as_sent
from canon.memory.turns import items_of, opening, turns_of
from canon.policy import RULES_VERSIONS
from canon.requests.view import Kind
from canon.slots import CONFIRMATIONS, ConversationSlots

_LOOK_BACK = 64  # client turns that one request may add: a user turn, or results of parallel calls
_SESSIONS = 4  # conversations with the same user turns that are told apart
_PINS = 4
_CALLS = 8


class Conversation:
    """What was sent before in the conversation that a request continues.

    `session` names the conversation, where a client says so: then a turn sent again is a retry. Without it, a first
    turn may as well be another conversation's that began alike: both notes are kept until the model's answers tell
    them apart.
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
        slot_confirmations: int = CONFIRMATIONS,
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
        began_with = self._before[-1].rules_version if self._before else rules_version
        # A version that this build does not have cannot act: the conversation goes on as a new one would.
        self.rules_version = began_with if began_with in RULES_VERSIONS else rules_version
        self.slots = self._slots(StoredSlots(store, self._sharing, kind, slot_confirmations), kind, body)

    def _slots(self, source: StoredSlots, kind: Kind, body: Mapping[str, Any]) -> ConversationSlots:
        """A conversation that begins takes the slots that are confirmed by now; one that goes on keeps its own."""
        if self._before:
            return ConversationSlots(source, frozenset(self._before[-1].slots))
        begins = all(turn.side != "model" for turn in turns_of(kind, body))
        return ConversationSlots(source, source.confirmed() if begins else frozenset())

    @property
    def turns(self) -> int:
        """How many user turns and tool results the request has; 0: it is no conversation."""
        return len(self._outline)

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

    def pins(self, turn: bytes) -> tuple[Pin, ...]:
        """What a turn was sent with; `turn` stands for it without a note, and for all before it as it was sent."""
        return pins_from(self.store.get(digest("pin", turn)))

    def pins_before(self, turn: bytes, answer: Answer) -> tuple[Pin, ...]:
        """What a turn was sent with where the model answered so; more than one: it cannot be told."""
        for each in answer_digests(answer):
            if pins := pins_from(self.store.get(digest("pin before", turn, each))):
                return pins
        return ()

    def answered(self, head: bytes) -> bool:
        """Whether any answer is known to what `head` stands for."""
        return self.store.get(_answer_key(head)) is not None

    def pin(self, turn: bytes, pin: Pin, *, again: bool) -> None:
        """Keep what the newest turn is sent with.

        `again`: all before it is known to be one conversation, so that if the turn was sent already, this is a retry.
        """
        keep = _instead if again or self._session else _with_note
        append(self.store, digest("pin", turn), pin, pins_from, keep)

    def calls(self, head: bytes) -> tuple[RecordedCalls, ...]:
        """The calls that the model made in answers to what `head` stands for, the first ones first."""
        return calls_from(self.store.get(_answer_key(head)))

    def sent(self, tools: Sequence[str], sent: Sent, *bodies: Mapping[str, Any]) -> None:
        """Keep what the next turn of this conversation asks for.

        `bodies` are the request as it came and as it was sent, so that an answer can be recorded under either.
        """
        if self._outline:
            state = SessionState(self.rules_version, tuple(tools), tuple(sorted(self.slots.acting)))
            append(self.store, _session_key(self._outline[-1]), state, sessions_from, _with_session)
        for body in bodies:
            self.store.put(self._body_key(body), dump([sent]))

    def record(self, body: Mapping[str, Any], answers: Iterable[Answer]) -> None:
        """Keep what the model answered to a request; `body` may be as it came or as it was sent."""
        known = sent_from(self.store.get(self._body_key(body)))
        head = bytes.fromhex(known[0].head) if known else self._head(body)
        for answer in answers:
            append(self.store, _answer_key(head), RecordedCalls(answer.calls), calls_from, _with_calls)
            for sent in known:
                for each in answer_digests(answer) if sent.turn else ():
                    key = digest("pin before", bytes.fromhex(sent.turn), each)
                    append(self.store, key, Pin(sent.note, sent.told), pins_from, _with_note)

    def _head(self, body: Mapping[str, Any]) -> bytes:
        chain = self.chain(body)
        for item in items_of(self.kind, body):
            chain.add(item)
        return chain.head

    def _body_key(self, body: Mapping[str, Any]) -> bytes:
        parts = [opening(self.kind, body), *items_of(self.kind, body)]
        return digest("body", self._client, *map(self._digests, parts))

    def _sessions_before(self) -> tuple[SessionState, ...]:
        # Only a session tells that a turn with nothing before it was sent before in the same conversation.
        keys = self._outline if self._session else self._outline[:-1]
        for key in keys[: -1 - _LOOK_BACK : -1]:
            if states := sessions_from(self.store.get(_session_key(key))):
                return states
        return ()


def _with_session(states: tuple[SessionState, ...], state: SessionState) -> tuple[SessionState, ...]:
    return (*(other for other in states if other != state), state)[-_SESSIONS:]


def _instead(_: tuple[Pin, ...], pin: Pin) -> tuple[Pin, ...]:
    return (pin,)


def _with_note(pins: tuple[Pin, ...], pin: Pin) -> tuple[Pin, ...]:
    """One pin for each note; what it says was told is what all that had this note were told."""
    for other in pins:
        if other.note == pin.note:
            pin = Pin(pin.note, tuple(each for each in other.told if each in pin.told))
    return (*(other for other in pins if other.note != pin.note), pin)[-_PINS:]


def _with_calls(rows: tuple[RecordedCalls, ...], row: RecordedCalls) -> tuple[RecordedCalls, ...]:
    # The first ones stay: what was replayed once is replayed again.
    return rows if not row.calls or row in rows or len(rows) >= _CALLS else (*rows, row)


def _answer_key(head: bytes) -> bytes:
    return digest("answer", head)


def _session_key(outline: bytes) -> bytes:
    return digest("session", outline)
