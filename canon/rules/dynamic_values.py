"""Values of the moment, the session and the user leave the system text for the tail note.

Clocks and dates, ids, places such as hosts and directories, the state of a repository, counters and budgets, lines
about the user. Only whole lines and whole blocks leave, with their label, heading and tags, word for word.

It never touches a value that is part of a sentence or of content (fences, tables, quotes, examples, records,
schedules), text outside the system texts, or a part that carries a mark of its own and would be left empty: these are
reported.
"""

from itertools import islice

from canon.context import RuleContext
from canon.moving import Cut, from_last_slot, move, report
from canon.requests.view import TextSlot
from canon.values.passages import may_hold_passage, passages_of
from canon.values.sheet import Stay
from canon.values.stamps import stamps_in

NAME = "dynamic_values"
_MOST_FINDINGS = 20


def apply(context: RuleContext) -> None:
    from_last_slot(context, context.view.system_texts(), lambda slot: _apply(context, slot))


def _apply(context: RuleContext, slot: TextSlot) -> None:
    held = may_hold_passage(slot.text)
    passages, stays = passages_of(slot.text, context.lines(slot.text)) if held else ([], [])
    stays += [
        Stay(each.start, each.stop, each.kind, False) for each in islice(stamps_in(slot.text), _MOST_FINDINGS)
    ]
    cuts = [Cut(each.start, each.stop, each.kinds[0] if each.kinds else "value") for each in passages]
    move(context, NAME, slot, cuts)
    told = [(cut.start, cut.stop) for cut in cuts]
    for stay in stays[:_MOST_FINDINGS]:
        if not any(start < stay.stop and stay.offset < stop for start, stop in told):
            told.append((stay.offset, stay.stop))
            _report(context, slot, stay)


def _report(context: RuleContext, slot: TextSlot, stay: Stay) -> None:
    where = "in content" if stay.guarded else "in a sentence"
    fix = "put it on a line of its own, with a label, or in a user turn"
    cut = Cut(stay.offset, stay.stop, stay.kind)
    report(context, NAME, slot, cut, f"{stay.kind} {where}", fix, slot.text[stay.offset : stay.stop])
