"""What a difference between two prompts is, by name, and what would end it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unicodedata import normalize

from canon.lint.alignment import Divergence
from canon.lint.segments import Segment
from canon.values import classify


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of difference. `rule` names canon's rule for it, or the kind itself where canon only reports."""

    rule: str
    name: str
    fix: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A difference with what is around it."""

    divergence: Divergence
    old: Sequence[Segment]
    new: Sequence[Segment]


# Another question is no cause of anything; a long text behind what differs is worth a word.
NEWEST = Cause("changing_text", "text that differs in the newest turn", "put what changes behind what stays")

_Test = Callable[[Evidence], bool]

_THINKING = re.compile(r"<think(?:ing)?>")
_CLEARED = re.compile(r"(?i)\b(?:cleared|pruned|truncated|omitted|elided|removed|compacted|summari[sz]ed)\b")


# Templates print a string as it is, and an object in a way of their own.
WIRE_FORMS = Cause(
    "call_arguments",
    "mixed wire forms of tool-call arguments: a string in one request, an object in another",
    "send them in one form, best as the string that the model's answer had",
)


def cause_of(evidence: Evidence) -> Cause:
    """The first kind that fits, the most telling ones first."""
    cause = next(cause for test, cause in _KINDS if test(evidence))
    if cause.rule in ("changing_text", "history_rewritten"):
        return _of_value(evidence, cause)
    return cause


def _of_value(evidence: Evidence, cause: Cause) -> Cause:
    """Named by the kind of value that differs: a clock, an id, a counter."""
    one = evidence.divergence
    kind = (
        classify(_line(evidence, old=True), _line(evidence, old=False)) if one.change == "changed" else None
    )
    if kind is None:
        return cause
    if cause.rule == "history_rewritten":
        return Cause(
            cause.rule, f"another {kind} in an earlier turn", "stamp a turn once, when it is first sent"
        )
    fix = "make it a line of its own, which policy full moves to the last turn, or put it there"
    return Cause("dynamic_values", f"another {kind}", fix)


def _change(*changes: str) -> _Test:
    return lambda evidence: evidence.divergence.change in changes


def _kind(*kinds: str) -> _Test:
    return lambda evidence: evidence.divergence.segment.kind in kinds


def _role(*roles: str) -> _Test:
    return lambda evidence: evidence.divergence.segment.role in roles


def _all(*tests: _Test) -> _Test:
    return lambda evidence: all(test(evidence) for test in tests)


def _both(pattern: re.Pattern[str]) -> _Test:
    return lambda evidence: bool(
        pattern.search(evidence.divergence.before) and pattern.search(evidence.divergence.after)
    )


def _is_age(evidence: Evidence) -> bool:
    return classify(_line(evidence, old=True), _line(evidence, old=False)) == "relative time"


def _line(evidence: Evidence, old: bool) -> str:
    one = evidence.divergence
    segment = one.old if old else one.segment
    shown = one.before if old else one.after
    at = segment.text.find(shown, max(0, one.offset - 64)) if segment is not None and shown else -1
    if segment is None or at < 0:
        return shown
    begin = segment.text.rfind("\n", max(0, at - 500), at) + 1 or max(0, at - 500)
    end = segment.text.find("\n", at + len(shown))
    return segment.text[begin : end if 0 <= end < at + len(shown) + 500 else at + len(shown) + 500]


def _whole_tool(evidence: Evidence) -> bool:
    return len(evidence.divergence.segment.path) <= 2


def _came_or_went(evidence: Evidence) -> bool:
    one = evidence.divergence
    piece = one.old if one.change == "removed" and one.old is not None else one.segment
    return piece.kind == "tool" and _whole_tool(evidence) and one.change in ("inserted", "removed")


def _takes_out_thinking(evidence: Evidence) -> bool:
    one = evidence.divergence
    return one.segment.kind == "reasoning" or bool(
        one.change in ("removed", "inserted") and _THINKING.search(one.before + one.after)
    )


def _same_json(evidence: Evidence) -> bool:
    one = evidence.divergence
    if one.old is None:
        return False
    return _skeleton(one.old.text) == _skeleton(one.segment.text)


def _skeleton(text: str) -> list[str]:
    """Letters and digits in sorted runs: equal for two spellings of one JSON value."""
    return sorted(re.findall(r"[\w.+-]+", text[:200_000]))


def _permuted_words(evidence: Evidence) -> bool:
    one = evidence.divergence
    before, after = (re.findall(r"\w+", text) for text in (one.before, one.after))
    return len(before) > 1 and before != after and sorted(before) == sorted(after)


def _taken_off(evidence: Evidence) -> bool:
    """Whether a turn has lost its end, and nothing else."""
    one = evidence.divergence
    return one.change == "removed" and one.old is not None and one.old.text.startswith(one.segment.text)


def _newest_turn(evidence: Evidence) -> bool:
    return evidence.divergence.segment is evidence.new[-1]


def _blank_only(evidence: Evidence) -> bool:
    one = evidence.divergence
    return _no_blanks(one.before) == _no_blanks(one.after)


def _no_blanks(text: str) -> str:
    return "".join(text.replace("\ufeff", "").split())


def _json_text(evidence: Evidence) -> bool:
    return evidence.divergence.segment.text.lstrip()[:1] in ("{", "[")


def _unicode_only(evidence: Evidence) -> bool:
    one = evidence.divergence
    return one.before != one.after and normalize("NFC", one.before) == normalize("NFC", one.after)


def _image_before_text(evidence: Evidence) -> bool:
    return evidence.divergence.segment.kind == "media"


def _history_is_shorter(evidence: Evidence) -> bool:
    one = evidence.divergence
    gone = one.old.role if one.old is not None else "system"
    return one.change == "removed" and gone not in ("system", "developer", "tools")


def _of_system(evidence: Evidence) -> bool:
    one = evidence.divergence
    piece = one.old if one.change == "moved" and one.old is not None and not one.after else one.segment
    return piece.role in ("system", "developer")


def _late_system(evidence: Evidence) -> bool:
    one = evidence.divergence
    return one.segment.role in ("system", "developer") and one.segment.turn > 0


_IN_PROMPT_HEAD = _role("system", "developer")

_KINDS: tuple[tuple[_Test, Cause], ...] = (
    (
        _all(_kind("tool"), _change("keys reordered")),
        Cause("schema_keywords", "schema keys in another order", "policy safe orders keywords"),
    ),
    (
        _all(_kind("tool"), _change("properties reordered")),
        Cause(
            "property_order",
            "properties of a schema in another order",
            "keep their order fixed where the schema is made: it may be the order in which the model writes",
        ),
    ),
    (
        _all(_kind("tool"), _change("reordered"), _whole_tool),
        Cause("tool_order", "tools in another order", "policy full sorts tools by name"),
    ),
    (
        _came_or_went,
        Cause(
            "tool_set",
            "another set of tools",
            "send the same tools in every request of a conversation and forbid some by tool_choice, or add new ones at "
            "the end (policy full with a memory does)",
        ),
    ),
    (
        _image_before_text,
        Cause("media_order", "an image before fixed text", "put the fixed text first and media behind it"),
    ),
    (
        _takes_out_thinking,
        Cause(
            "reasoning",
            "thinking was taken out of an earlier turn",
            "send past turns as the model produced them, or switch the template to keep thinking",
        ),
    ),
    (
        _all(_kind("call_id")),
        Cause("call_ids", "another id for the same tool call", "keep ids; policy full replays them"),
    ),
    (
        _all(_kind("call"), _same_json),
        Cause(
            "call_arguments",
            "tool-call arguments were serialized anew",
            "send arguments back as the string that came; policy full with a memory replays them",
        ),
    ),
    (
        _all(_change("moved"), _of_system),
        Cause(
            "hoisted_system",
            "a system message that stands in another place now",
            "leave a system message where it was first sent, and append a new one instead of merging it into the first",
        ),
    ),
    (
        _change("moved"),
        Cause(
            "floating_block",
            "a block that moves from turn to turn",
            "leave it in the turn where it was first sent and add only what is new",
        ),
    ),
    (
        _blank_only,
        Cause(
            "whitespace", "blanks, line ends or a byte order mark", "policy safe unifies them in system text"
        ),
    ),
    (
        _all(_kind("text"), _json_text, _same_json),
        Cause(
            "json_parts",
            "the same JSON written in another way",
            "policy full writes it in one way; sort its keys",
        ),
    ),
    (
        _unicode_only,
        Cause("unicode", "the same letters in another Unicode form", "policy safe composes them"),
    ),
    (
        _is_age,
        Cause("relative_time", "relative time in content", "give the point in time instead of the age"),
    ),
    (
        _change("reordered"),
        Cause("list_order", "a list in another order", "sort it where it is made"),
    ),
    (
        _all(_kind("text", "tool"), _permuted_words),
        Cause("list_order", "the same words in another order", "sort them where they are made"),
    ),
    (
        _all(_late_system),
        Cause(
            "late_system",
            "a system message in mid-conversation changes",
            "append a new one, leave the earlier ones",
        ),
    ),
    (
        _all(_role("tool"), _both(_CLEARED)),
        Cause("history_rewritten", "an earlier tool result changed", "leave earlier turns as they were sent"),
    ),
    (
        _all(_role("user"), _taken_off),
        Cause(
            "floating_block", "a block that only the newest turn has", "leave it in the turn it was sent with"
        ),
    ),
    (
        _history_is_shorter,
        Cause(
            "sliding_truncation",
            "the oldest turns were cut off",
            "cut rarely and much (down to half) instead of a little each time, or summarize once",
        ),
    ),
    (_all(_role("user"), _newest_turn), NEWEST),
    (
        _all(_role("user", "assistant", "tool", "function")),
        Cause("history_rewritten", "an earlier turn was rewritten", "leave earlier turns as they were sent"),
    ),
    (
        _all(_kind("tool")),
        Cause(
            "tool_text",
            "a tool's description or schema changes",
            "keep it fixed; put what changes into the last turn",
        ),
    ),
    (
        _all(_IN_PROMPT_HEAD, _change("inserted", "removed")),
        Cause("appears_once", "a block that only some requests have", "put it into the last user turn"),
    ),
    (lambda _: True, Cause("changing_text", "text that differs", "put what changes into the last user turn")),
)
