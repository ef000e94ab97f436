"""Values of the moment, the session and the user leave the system text for the tail note.

Clocks and dates, ids, places such as hosts and directories, the state of a repository, counters and budgets, lines
about the user. Only whole lines and whole blocks leave, with their label, heading and tags, word for word.

It never touches a value that is part of a sentence or of content (fences, tables, quotes, examples, records,
schedules), text outside the system texts, or a part that carries a mark of its own and would be left empty: these are
reported.
"""

from canon.context import RuleContext
from canon.moving import Cut, from_last_slot, move, report
from canon.requests.view import TextSlot
from canon.values.passages import may_hold_passage, passages_of

NAME = "dynamic_values"
_MOST_FINDINGS = 20


def apply(context: RuleContext) -> None:
    slots = [slot for slot in context.view.system_texts() if may_hold_passage(slot.text)]
    from_last_slot(context, slots, lambda slot: _apply(context, slot))


def _apply(context: RuleContext, slot: TextSlot) -> None:
    passages, stays = passages_of(slot.text, context.lines(slot.text))
    cuts = [Cut(each.start, each.stop, each.kinds[0] if each.kinds else "value") for each in passages]
    move(context, NAME, slot, cuts)
    for stay in stays[:_MOST_FINDINGS]:
        if any(cut.start <= stay.offset < cut.stop for cut in cuts):
            continue
        where = "in content" if stay.guarded else "in a sentence"
        fix = "put it on a line of its own, with a label, or in a user turn"
        cut = Cut(stay.offset, stay.stop, stay.kind)
        report(context, NAME, slot, cut, f"{stay.kind} {where}", fix, slot.text[stay.offset : stay.stop])
