"""Where a prompt leaves an earlier one, and every later place where it does so again once the first is mended."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Literal

import msgspec

from canon.lint.segments import Segment, dump
from canon.lint.tool_differences import Way, differences

Change = Literal[
    "changed", "inserted", "removed", "reordered", "moved", "keys reordered", "properties reordered"
]
_WAYS: dict[Way, Change] = {
    "value": "changed",
    "list order": "reordered",
    "key order": "keys reordered",
    "property order": "properties reordered",
}

_PIECES = (
    4_000  # pieces, or lines of one text, that are aligned at most; what lies behind is taken as it stands
)
_WORD = 64  # characters by which a difference is widened at most, so that whole values are shown
_WORTH = 16  # bytes; a shared full stop is no loss
_GAP = 3  # equal lines between two differences that may still be one, a list in another order
_FORK = 0.3  # below this share of equal characters two turns are different turns
_GOES_ON = 64  # characters that must be equal behind such a turn for the conversation to be the same one


@dataclass(frozen=True, slots=True)
class Divergence:
    """One difference from the earlier prompt, and how much equal text behind it is computed again because of it."""

    change: Change
    segment: Segment  # where in the later prompt; of what was removed: the piece that stands there now
    offset: int  # characters into the segment's text
    before: str
    after: str
    old: Segment | None = None  # the earlier prompt's piece
    lost: int = 0  # UTF-8 bytes of equal text up to the next difference


@dataclass(slots=True)
class _Trail:
    """Differences found so far; equal text is charged to the last one."""

    found: list[Divergence] = field(default_factory=list)

    def equal(self, text: str) -> None:
        if self.found:
            last = self.found[-1]
            self.found[-1] = replace(last, lost=last.lost + byte_length(text))


def byte_length(text: str) -> int:
    """UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def compare(old: Sequence[Segment], new: Sequence[Segment]) -> list[Divergence]:
    """All differences of `new` from `old` up to where it is another conversation, but for those that cost nothing."""
    start = _common(old, new)
    trail = _Trail()
    old, new = old[start:], new[start:]
    rest = sum(len(piece.text) for piece in new)
    for step in _steps(old, new):
        if not _follow(step, old, new, trail, rest):
            break
    found = [_with_answer(each, old[-1], new) if old else each for each in trail.found]
    return [each for each in _moves(found, old, new) if each.lost >= _WORTH]


def _with_answer(last: Divergence, newest: Segment, new: Sequence[Segment]) -> Divergence:
    """What the earlier request ended in was taken out or rewritten: the answer to it is computed again as well."""
    rewritten = newest.role in ("tool", "function") and last.change == "changed"
    if last.old is not newest or last.lost or not (rewritten or last.change == "removed"):
        return last
    behind = [piece for piece in new if piece.turn > last.segment.turn and piece.role == "assistant"]
    if newest.role not in ("user", "tool", "function") or not behind or len(last.before) < _WORTH:
        return last
    return replace(last, lost=byte_length(behind[0].text))


def wire_forms(old: Sequence[Segment], new: Sequence[Segment]) -> list[Divergence]:
    """What is the same and was sent in another form, before the first real difference."""
    shared = new[: _common(old, new)]
    found: list[Divergence] = []
    for at, piece in enumerate(shared):
        if piece.wire != old[at].wire:
            lost = sum(byte_length(later.text) for later in shared[at:])
            found.append(Divergence("changed", piece, 0, old[at].wire, piece.wire, old[at], lost))
            break  # what follows is lost already
    return found


def _common(old: Sequence[Segment], new: Sequence[Segment]) -> int:
    length = min(len(old), len(new))
    return next((i for i in range(length) if old[i].key != new[i].key), length)


_Step = tuple[str, int, int, int, int]


def _steps(old: Sequence[Segment], new: Sequence[Segment]) -> Sequence[_Step]:
    keys = [[piece.key for piece in side[:_PIECES]] for side in (old, new)]
    return SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes()


def _follow(step: _Step, old: Sequence[Segment], new: Sequence[Segment], trail: _Trail, rest: int) -> bool:
    """Note what one step of the alignment says; False: the conversations part here."""
    tag, i, i_end, j, j_end = step
    if tag == "equal":
        for piece in new[j:j_end]:
            trail.equal(piece.text)
        return True
    pairs, removed, inserted = _paired(old[i:i_end], new[j:j_end])
    later = sum(len(piece.text) for piece in _equal_behind(old[i_end:], new[j_end:]))
    for before, after in pairs:
        if _is_fork(before, after) and later < _GOES_ON:
            return False
        _changes(before, after, trail)
    place = new[min(j_end, len(new) - 1)] if new else None
    for piece in removed:
        if place is not None:
            trail.found.append(Divergence("removed", place, 0, piece.text, "", piece))
    trail.found += [Divergence("inserted", piece, 0, "", piece.text) for piece in inserted]
    return True


def _equal_behind(old: Sequence[Segment], new: Sequence[Segment]) -> list[Segment]:
    keys = {piece.key for piece in old}
    return [piece for piece in new if piece.key in keys]


def _paired(
    old: Sequence[Segment], new: Sequence[Segment]
) -> tuple[list[tuple[Segment, Segment]], list[Segment], list[Segment]]:
    """Pieces that stand for each other, in order; then those that only one side has."""
    pairs: list[tuple[Segment, Segment]] = []
    inserted: list[Segment] = []
    left = list(old)
    for piece in new:
        found = next((k for k, other in enumerate(left[:8]) if _same_place(other, piece)), None)
        if found is None:
            inserted.append(piece)
            continue
        pairs.append((left[found], piece))
        del left[found if piece.kind == "tool" else 0 : found + 1]
    gone = [piece for piece in old if all(piece is not before for before, _ in pairs)]
    return pairs, gone, inserted


def _same_place(old: Segment, new: Segment) -> bool:
    if new.kind == "tool":
        return old.kind == "tool" and _tool_name(old.text) == _tool_name(new.text)
    return (old.role, old.kind) == (new.role, new.kind) and old.path[-1:] == new.path[-1:]


def _tool_name(text: str) -> str:
    found = re.search(r'"name":"([^"]{0,200})"', text)
    return found[1] if found else text[:200]


def _is_fork(old: Segment, new: Segment) -> bool:
    if old.role not in ("user", "assistant", "prompt") or old.kind != "text":
        return False
    longest = max(len(old.text), len(new.text))
    start = common_start(old.text, new.text)
    end = common_end(old.text[start:], new.text[start:])
    if start + end >= min(len(old.text), len(new.text)):
        return False  # something was put in or taken out
    return start + end < _FORK * longest


def _changes(old: Segment, new: Segment, trail: _Trail) -> None:
    """The differences inside one piece."""
    if new.kind == "tool" and _tool_changes(old, new, trail):
        return
    start = common_start(old.text, new.text)
    end = common_end(old.text[start:], new.text[start:])
    trail.equal(new.text[:start])
    a, b = old.text[start : len(old.text) - end], new.text[start : len(new.text) - end]
    if new.kind == "text" and "\n" in a and "\n" in b:
        end = _line_changes(old, new, start, end, trail)
    else:
        _note(old, new, (start, start + len(a)), (start, start + len(b)), trail)
    trail.equal(new.text[len(new.text) - end :] if end else "")


def _tool_changes(old: Segment, new: Segment, trail: _Trail) -> bool:
    """Differences by key rather than by letter; False where that cannot be said."""
    found = differences(old.text, new.text)
    if not found:
        return False
    at = 0
    for each in found:
        after = _shown(each.after)
        place = max(at, new.text.find(dump(each.after), at))
        trail.equal(new.text[at:place])
        piece = msgspec.structs.replace(new, path=(*new.path, *each.path))
        trail.found.append(Divergence(_WAYS[each.way], piece, 0, _shown(each.before), after, old))
        at = place
    trail.equal(new.text[at:])
    return True


def _shown(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else dump(value)


def _line_changes(old: Segment, new: Segment, start: int, end: int, trail: _Trail) -> int:
    """Line by line, from the start of the first line that differs; how many characters are left behind the last."""
    begin = new.text.rfind("\n", 0, start) + 1
    line_end = new.text.find("\n", len(new.text) - end)
    end = len(new.text) - line_end - 1 if line_end >= 0 else 0
    sides = [_Lines(piece.text, begin, len(piece.text) - end) for piece in (old, new)]
    a, b = sides[0].lines, sides[1].lines
    for hunk in _hunks(SequenceMatcher(None, a[:_PIECES], b[:_PIECES], autojunk=False).get_opcodes()):
        i, i_end, j, j_end = hunk[0][1], hunk[-1][2], hunk[0][3], hunk[-1][4]
        if _permuted(a[i:i_end], b[j:j_end]):
            before, after = "".join(a[i:i_end]), "".join(b[j:j_end])
            trail.found.append(Divergence("reordered", new, sides[1].places[j], before, after, old))
            trail.equal(after)
            continue
        for step in hunk:
            _line_step(step, old, new, sides, trail)
    return end


class _Lines:
    """Lines of a part of a text, with where each begins; `places` has the end behind the last one."""

    def __init__(self, text: str, begin: int, end: int) -> None:
        self.lines = text[begin:end].splitlines(keepends=True)
        self.places = [begin]
        for line in self.lines:
            self.places.append(self.places[-1] + len(line))


def _hunks(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Steps that belong together: equal lines between two differences part them if there are more than a few."""
    hunk: list[_Step] = []
    for step in steps:
        if step[0] == "equal" and (not hunk or step[2] - step[1] > _GAP):
            if hunk:
                yield hunk
            yield [step]
            hunk = []
        else:
            hunk.append(step)
    if hunk:
        yield hunk


def _line_step(step: _Step, old: Segment, new: Segment, sides: Sequence[_Lines], trail: _Trail) -> None:
    tag, i, i_end, j, j_end = step
    places = [side.places for side in sides]
    if tag == "equal":
        trail.equal("".join(sides[1].lines[j:j_end]))
    elif i_end - i == j_end - j:
        for k in range(i_end - i):
            a_line = places[0][i + k], places[0][i + k + 1]
            b_line = places[1][j + k], places[1][j + k + 1]
            _line(old, new, a_line, b_line, trail)
    else:
        _note(old, new, (places[0][i], places[0][i_end]), (places[1][j], places[1][j_end]), trail)


def _permuted(a: list[str], b: list[str]) -> bool:
    whole = [[line.strip() for line in lines if line.strip()] for lines in (a, b)]
    return whole[0] != whole[1] and sorted(whole[0]) == sorted(whole[1])


_Span = tuple[int, int]


def _line(old: Segment, new: Segment, a: _Span, b: _Span, trail: _Trail) -> None:
    before, after = old.text[slice(*a)], new.text[slice(*b)]
    start = common_start(before, after)
    end = common_end(before[start:], after[start:])
    trail.equal(after[:start])
    _note(old, new, (a[0] + start, a[1] - end), (b[0] + start, b[1] - end), trail)
    trail.equal(after[len(after) - end :] if end else "")


def _note(old: Segment, new: Segment, a: _Span, b: _Span, trail: _Trail) -> None:
    """A difference; where both sides have text, widened to whole words."""
    if a[0] == a[1] and b[0] == b[1]:
        return
    widen = a[0] < a[1] and b[0] < b[1]
    left, right = (_word_left(new.text, b[0]), _word_right(new.text, b[1])) if widen else (0, 0)
    before = old.text[a[0] - left : a[1] + right]
    after = new.text[b[0] - left : b[1] + right]
    change: Change = "removed" if b[0] == b[1] else "inserted" if a[0] == a[1] else "changed"
    trail.found.append(Divergence(change, new, b[0] - left, before, after, old))


def _word_left(text: str, at: int) -> int:
    count = 0
    while count < min(_WORD, at) and not text[at - count - 1].isspace():
        count += 1
    return count


def _word_right(text: str, at: int) -> int:
    count = 0
    while count < min(_WORD, len(text) - at) and not text[at + count].isspace():
        count += 1
    return count


def common_start(a: str, b: str) -> int:
    """Length of the longest common prefix."""
    most, low, high = min(len(a), len(b)), 0, 1
    while (
        high < most and a[low:high] == b[low:high]
    ):  # doubled, since most texts part within a few characters
        low, high = high, 2 * high
    high = min(high, most)
    if a[low:high] == b[low:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def common_end(a: str, b: str) -> int:
    """Length of the longest common suffix."""
    end_a, end_b, low, high = len(a), len(b), 0, 1
    most = min(end_a, end_b)
    while high < most and a[end_a - high : end_a - low] == b[end_b - high : end_b - low]:  # as above
        low, high = high, 2 * high
    high = min(high, most)
    if a[end_a - high : end_a - low] == b[end_b - high : end_b - low]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[end_a - middle : end_a - low] == b[end_b - middle : end_b - low]:
            low = middle
        else:
            high = middle
    return low


def _moves(found: list[Divergence], old: Sequence[Segment], new: Sequence[Segment]) -> Iterator[Divergence]:
    """Tools that only changed places are one difference; a block that turns up elsewhere is moved, and its own cost."""
    whole = [each for each in found if _is_whole_tool(each)]
    yield from _tool_moves(whole, old, new)
    for each in found:
        if all(each is not other for other in whole):
            yield _moved(each, old, new)


def _is_whole_tool(each: Divergence) -> bool:
    piece = each.old if each.change == "removed" and each.old is not None else each.segment
    return piece.kind == "tool" and len(piece.path) == 2


def _tool_moves(
    found: list[Divergence], old: Sequence[Segment], new: Sequence[Segment]
) -> Iterator[Divergence]:
    """Tools that are on both sides and stand elsewhere are one difference, those that came or went are others."""
    names = [[_tool_name(piece.text) for piece in side if piece.kind == "tool"] for side in (old, new)]
    both = set(names[0]) & set(names[1])
    kept = [[name for name in side if name in both] for side in names]
    moved = [each for each in found if _tool_name(each.after or each.before) in both]
    if moved and kept[0] != kept[1]:
        spent = sum(byte_length(piece.text) for piece in new if piece.kind == "tool")
        first = next((piece for piece in new if piece.kind == "tool"), moved[0].segment)
        first = msgspec.structs.replace(first, path=("tools",))
        lost = max(spent, sum(each.lost for each in moved))
        yield Divergence("reordered", first, 0, ", ".join(kept[0]), ", ".join(kept[1]), moved[0].old, lost)
        found = [each for each in found if all(each is not other for other in moved)]
    yield from found


def _moved(each: Divergence, old: Sequence[Segment], new: Sequence[Segment]) -> Divergence:
    """A block of some size that was there and is elsewhere now."""
    block = (each.before if each.change == "removed" else each.after).strip()
    if each.change not in ("removed", "inserted") or len(block) < 8:
        return each
    others = new if each.change == "removed" else old
    if not any(
        block in piece.text for piece in others if piece.turn != each.segment.turn or each.offset == 0
    ):
        return each
    again = byte_length(block) if each.change == "removed" else 0
    return replace(each, change="moved", lost=each.lost + again)
