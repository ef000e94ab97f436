"""One request along its conversation: what was sent before is repeated, and what is new is kept."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from canon.context import RuleContext
from canon.memory.answer import Answer, answer_of
from canon.memory.call_replay import RULE, CallReplay
from canon.memory.chain import Chain, digest
from canon.memory.conversation import Conversation
from canon.memory.records import Pin, Sent
from canon.memory.turns import turns_of
from canon.requests.paths import Path
from canon.results import Edit
from canon.tail_note import compose, with_note


def walk(context: RuleContext, conversation: Conversation) -> Sent:
    """Replay notes and calls of earlier turns, place the newest turn's note, and pin it.

    Returns what it goes out as.
    """
    return _Walk(context, conversation).run()


class _Walk:
    def __init__(self, context: RuleContext, conversation: Conversation) -> None:
        self._context = context
        self._conversation = conversation
        self._draft = context.draft
        self._turns = turns_of(conversation.kind, self._draft.body)
        self._calls = CallReplay(context, self._turns)
        self._sent = Sent("")
        self._answered = self._unknown = False  # whether there are earlier answers; any to what is not known
        self._told: Sequence[str] = ()  # digests of the values that notes so far have told

    def run(self) -> Sent:
        chain = self._conversation.chain(self._draft.body)
        newest = self._context.view.newest_turn()
        for index, turn in enumerate(self._turns):
            if turn.path == newest:
                self._tell(chain, turn.path)
            elif turn.side == "client":
                self._repeat(chain, index)
            chain.add(self._draft.get(turn.path))
            if turn.side == "client" and (end := self._end_of_answer(index + 1)) > index + 1:
                self._calls.replay(index + 1, end, partial(self._conversation.calls, chain.head))
        return replace(self._sent, head=chain.head.hex())

    def _tell(self, chain: Chain, path: Path) -> None:
        """The newest turn: tell what the conversation does not know yet."""
        key = chain.then(self._draft.get(path))
        values = {_digest(moved.text): moved.text for moved in self._context.moved}
        news = [text for value, text in values.items() if value not in self._told]
        note = compose(news) if news else None
        self._conversation.pin(key, Pin(note, tuple(values)), again=self._answered and not self._unknown)
        self._sent = Sent("", key.hex(), note, tuple(values))
        if note is not None:
            self._place(path, note)

    def _repeat(self, chain: Chain, index: int) -> None:
        """An earlier turn: send it with the note that it had."""
        item = self._draft.get(self._turns[index].path)
        pin = self._pin_of(chain, item, index)
        if self._end_of_answer(index + 1) > index + 1:
            self._answered = True
            self._unknown = self._unknown or pin is None
        if pin is None:
            return
        self._told = pin.told
        if pin.note is not None:
            path = self._turns[index].path
            self._place(path, pin.note)
            self._context.edits.append(Edit(RULE, self._context.where(path), "", pin.note))

    def _pin_of(self, chain: Chain, item: object, index: int) -> Pin | None:
        """What the turn was sent with; None where nothing is known, or where it may have been one thing or another."""
        conversation, turn = self._conversation, chain.then(item)
        pins = conversation.pins(turn)
        if not pins:
            return None
        said = self._answer_behind(index)
        if said is not None and (before := conversation.pins_before(turn, said)):
            return before[0] if len(before) == 1 else None
        if len(pins) != 1 or conversation.needs_answers:
            return None
        note = pins[0].note
        sent = item if note is None else with_note(item, note)
        other = said is not None and conversation.answered(chain.then(sent))  # this is none of its answers
        return None if other else pins[0]

    def _answer_behind(self, index: int) -> Answer | None:
        end = self._end_of_answer(index + 1)
        if end == index + 1:
            return None
        return answer_of([self._draft.get(turn.path) for turn in self._turns[index + 1 : end]])

    def _place(self, path: Path, note: str) -> None:
        self._draft.set(path, with_note(self._draft.get(path), note))

    def _end_of_answer(self, start: int) -> int:
        """Where the row of the model's turns that begins at `start` ends."""
        end = start
        while end < len(self._turns) and self._turns[end].side == "model":
            end += 1
        return end


def _digest(text: str) -> str:
    return digest("value", text.encode("utf-8", "surrogatepass")).hex()[:32]
