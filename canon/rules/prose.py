"""What the rules for system prose share: texts with what is known about their ends."""

from collections.abc import Iterator
from typing import NamedTuple

from canon.context import RuleContext
from canon.requests.view import TextSlot


class Prose(NamedTuple):
    """A system text. Templates join the parts of one message, so only its outer ends are ends of a whole text."""

    slot: TextSlot
    starts: bool  # the first text of its message
    ends: bool  # the last text of its message


def prose_of(context: RuleContext) -> Iterator[Prose]:
    """The system texts as they are now."""
    slots = context.view.system_texts()
    for at, slot in enumerate(slots):
        starts = at == 0 or slots[at - 1].turn != slot.turn
        ends = at + 1 == len(slots) or slots[at + 1].turn != slot.turn
        yield Prose(slot, starts, ends)
