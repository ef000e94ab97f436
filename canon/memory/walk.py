"""One request along its conversation: what was sent before is repeated, and what is new is kept."""

from collections.abc import Sequence

from canon.context import RuleContext
from canon.memory.answer import answer_of
from canon.memory.call_replay import CallReplay
from canon.memory.chain import Chain, digest
from canon.memory.conversation import Conversation
from canon.memory.records import Pin
from canon.memory.turns import turns_of
from canon.requests.paths import Path
from canon.tail_note import compose, with_note


def walk(context: RuleContext, conversation: Conversation) -> bytes:
    """Replay notes and calls of earlier turns, place the newest turn's note, and pin it.

    Returns what stands for the conversation as it is sent now.
    """
    return _Walk(context, conversation).run()


class _Walk:
    def __init__(self, context: RuleContext, conversation: Conversation) -> None:
        self._context = context
        self._conversation = conversation
        self._draft = context.draft
        self._turns = turns_of(conversation.kind, self._draft.body)
        self._calls = CallReplay(context, self._turns)
        self._told: Sequence[str] = ()  # digests of the values that notes so far have told

    def run(self) -> bytes:
        chain = self._conversation.chain(self._draft.body)
        newest = self._context.view.newest_turn()
        for index, turn in enumerate(self._turns):
            if turn.side == "client":
                if turn.path == newest:
                    self._tell(chain, turn.path)
                else:
                    self._repeat(chain, index)
            chain.add(self._draft.get(turn.path))
            if turn.side == "client" and (end := self._end_of_answer(index + 1)) > index + 1:
                self._calls.replay(index + 1, end, self._conversation.calls(chain.head))
        return chain.head

    def _tell(self, chain: Chain, path: Path) -> None:
        """The newest turn: tell what the conversation does not know yet."""
        key = chain.then(self._draft.get(path))
        values = {_digest(moved.text): moved.text for moved in self._context.moved}
        news = [text for value, text in values.items() if value not in self._told]
        note = compose(news) if news else None
        self._conversation.pin(key, Pin(note, tuple(values)))
        if note is not None:
            self._place(path, note)

    def _repeat(self, chain: Chain, index: int) -> None:
        """An earlier turn: send it with the note that it had."""
        item = self._draft.get(self._turns[index].path)
        pin = self._pin_of(chain, item, index)
        if pin is None:
            return
        self._told = pin.told
        if pin.note is not None:
            self._place(self._turns[index].path, pin.note)

    def _pin_of(self, chain: Chain, item: object, index: int) -> Pin | None:
        """What the turn was sent with; None where nothing is known, or where it may have been one thing or another."""
        pins = self._conversation.pins(chain.then(item))
        if not pins:
            return None
        followed = [self._followed(chain, item, pin, index + 1) for pin in pins]
        if len(pins) == 1 and followed[0] is None and not self._conversation.needs_answers:
            return pins[0]
        sure = [pin for pin, fits in zip(pins, followed, strict=True) if fits]
        return sure[0] if len(sure) == 1 else None

    def _followed(self, chain: Chain, item: object, pin: Pin, start: int) -> bool | None:
        """Whether the model's turns from `start` on answered this turn with that note; None: nobody can say."""
        end = self._end_of_answer(start)
        if start == end:
            return None
        said = answer_of([self._draft.get(turn.path) for turn in self._turns[start:end]])
        head = chain.then(item if pin.note is None else with_note(item, pin.note))
        return self._conversation.followed(head, said)

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
