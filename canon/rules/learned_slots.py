"""Lines that traffic has shown to be a template with a value of the moment in it, whatever the value looks like.

They are suggested; where a policy lets the rule act, those that were confirmed when the conversation began move to
the tail note, if they are a label with its value, give no order, and nothing guards them. It never touches a line
whose value is in its middle, and never changes its mind within a conversation.
"""

from collections.abc import Mapping, Sequence

from canon.context import RuleContext
from canon.moving import Cut, from_last_slot, move, report
from canon.requests.view import TextSlot
from canon.slots import Slot
from canon.slots.template import Words, fits, words_of
from canon.values.pairs import is_pair

NAME = "learned_slots"


def apply(context: RuleContext) -> None:
    slots = context.slots
    if slots is None:
        return
    texts = context.view.system_texts()
    learned = slots.source.observe(
        [line.of(slot.text) for slot in texts for line in context.lines(slot.text)]
    )
    acting = slots.acting if context.policy.acts(NAME) else frozenset()
    templates = [tuple(template.split(" ")) for template in acting]
    suggested = {tuple(slot.template.split(" ")): slot for slot in learned if slot.template not in acting}
    if templates or suggested:
        from_last_slot(context, texts, lambda slot: _apply(context, slot, templates, suggested))


def _apply(
    context: RuleContext, slot: TextSlot, acting: Sequence[Words], suggested: Mapping[Words, Slot]
) -> None:
    cuts: list[Cut] = []
    for line in context.lines(slot.text):
        string = line.of(slot.text)
        words = words_of(string)
        if words is None:
            continue
        cut = Cut(line.start, line.end, "learned slot")
        if line.guard is None and is_pair(string) and any(fits(template, words) for template in acting):
            cuts.append(cut)
        elif learned := next((each for template, each in suggested.items() if fits(template, words)), None):
            report(context, NAME, slot, cut, _CAUSE, _FIX_WHOLE if learned.whole else _FIX_MIDDLE, string)
    move(context, NAME, slot, cuts)


_CAUSE = "a line that differs from request to request"
_FIX_WHOLE = "let the rule learned_slots act, or send the line in a user turn"
_FIX_MIDDLE = "put the value on a line of its own, with a label, or in a user turn"
