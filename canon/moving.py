"""Takes passages out of system texts, for the rules that move something to the tail note."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from canon import tail_note
from canon.context import SHOWN, Moved, RuleContext
from canon.requests.view import TextSlot
from canon.results import Edit


class Cut(NamedTuple):
    """`text[start:stop]` is whole lines that leave, without their last line end."""

    start: int
    stop: int
    kind: str  # for people


def move(context: RuleContext, rule: str, slot: TextSlot, cuts: Sequence[Cut]) -> bool:
    """Move these pieces of a system text, or report them where the rule does not act or they have nowhere to go.

    Returns whether they were moved.
    """
    if not cuts:
        return False
    path = tail_note.carrier(context.view)
    rest = without(slot.text, cuts)
    bare = rest[:1] == "\ufeff"  # a byte order mark in front would be taken for the text's own
    if not context.policy.acts(rule) or path is None or bare or not _put(context, slot, rest):
        for cut in cuts:
            value = slot.text[cut.start : cut.stop]
            report(context, rule, slot, cut, f"{cut.kind} in the system text", _FIXES[path is None], value)
        return False
    for cut in cuts:
        text, origin = slot.text[cut.start : cut.stop], context.where(slot.path)
        context.moved.append(Moved(rule, origin, text))
        context.edits.append(Edit(rule, origin, text, "", moved_to=context.where(path)))
    return True


def from_last_slot(
    context: RuleContext, slots: Sequence[TextSlot], apply: Callable[[TextSlot], object]
) -> None:
    """Run `apply` on the last slot first, as a part that goes shifts those behind it; what was moved stays in order."""
    moved, edits = context.moved, context.edits
    blocks = []
    for slot in reversed(slots):
        context.moved, context.edits = [], []
        apply(slot)
        blocks.append((context.moved, context.edits))
    for more_moved, more_edits in reversed(blocks):
        moved += more_moved
        edits += more_edits
    context.moved, context.edits = moved, edits


def report(
    context: RuleContext, rule: str, slot: TextSlot, cut: Cut, cause: str, fix: str, value: str
) -> None:
    context.find(rule, slot.path, cause, offset=cut.start, values=(value[:SHOWN],), fix=fix)


_BLANK_END = re.compile(r"\n[ \t]*\r?\n[ \t]*\Z")
_FIXES = {
    False: "policy full moves it to the newest turn",
    True: "send it in a user turn; this request has none that a note can go into",
}


def without(text: str, cuts: Sequence[Cut]) -> str:
    """What is left when whole lines leave. Paragraphs on both sides stay apart by the blank lines that stood there."""
    pieces: list[str] = []
    at, apart = 0, True  # apart: what is kept so far is nothing, or ends in a blank line
    for cut in cuts:
        piece = text[at : cut.start]
        if piece:
            pieces.append(piece)
            apart = _BLANK_END.search(piece) is not None or (apart and not piece.strip())
        at = cut.stop + (2 if text.startswith("\r\n", cut.stop) else 1)
        while apart and (blank := _blank_line(text, at)):
            at += blank
    rest = text[at:]
    kept = "".join(pieces)
    return kept + rest if rest.strip() else kept.rstrip()


def _blank_line(text: str, at: int) -> int:
    """Length of the blank line that begins at `at`, with its end; 0: there is none."""
    end = at
    while end < len(text) and text[end] in " \t":
        end += 1
    if text.startswith("\r\n", end):
        return end + 2 - at
    return end + 1 - at if end < len(text) and text[end] in "\r\n" else 0


def _put(context: RuleContext, slot: TextSlot, rest: str) -> bool:
    """Leave `rest` in the slot's place. A part that would be empty goes, if nothing else hangs on it."""
    draft = context.draft
    if rest or slot.path[-1] != "text" or not isinstance(slot.path[-2], int):
        draft.set(slot.path, rest)
        return True
    *above, index, _ = slot.path
    parts = draft.get(tuple(above))
    if set(parts[index]) - {"type", "text"}:
        return False
    left = [part for at, part in enumerate(parts) if at != index]
    draft.set(tuple(above), left or "")
    return True
