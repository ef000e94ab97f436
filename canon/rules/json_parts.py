"""A system part or a tool result that is JSON as a whole gets its canonical form: members by name, no blanks.

Never: where something might be lost (a name twice, NaN, deep nesting: reported); an output form, an example, a schema;
what a tool read from a file; user and assistant text; tool-call arguments.
"""

from collections.abc import Iterator

from canon.context import RuleContext
from canon.errors import JsonRefusedError
from canon.lossless import canonical
from canon.requests.calls import call_id, calls_of, may_read_file
from canon.requests.view import TextSlot
from canon.rules.json_forms import may_be_schema, may_show_form
from canon.text import may_ask_for_form, may_refer_to_form

NAME = "json_parts"

_BLANKS = " \t\r\n"
_ENDS = {"{": "}", "[": "]"}


def apply(context: RuleContext) -> None:
    for slot in [*_system_parts(context), *_tool_results(context)]:
        _one_part(context, slot)


def _tool_results(context: RuleContext) -> list[TextSlot]:
    """Results that are data. What a tool read from a file is that file's text, to the letter, for edits to come."""
    results = [
        slot
        for slot in context.view.tool_results()
        if _looks_like_json(slot.text) and not may_be_schema(slot.text)
    ]
    if not results:
        return []
    calls = calls_of(context.draft.body)
    return [slot for slot in results if not may_read_file(calls.get(call_id(context.draft, slot.path)))]


def _system_parts(context: RuleContext) -> Iterator[TextSlot]:
    """System texts that hold data, not a form of what to write."""
    slots = context.view.system_texts()
    for at, slot in enumerate(slots):
        if not _looks_like_json(slot.text) or may_show_form(slot.text):
            continue
        asked = at > 0 and may_ask_for_form(_last_line(slots[at - 1].text))
        if not asked and not (at + 1 < len(slots) and may_refer_to_form(slots[at + 1].text)):
            yield slot


def _last_line(text: str) -> str:
    bare = text.rstrip()
    return bare[max(bare.rfind("\n"), bare.rfind("\r")) + 1 :]


def _looks_like_json(text: str) -> bool:
    first = text[:1] if text[:1] not in _BLANKS else text.lstrip(_BLANKS)[:1]
    return first in _ENDS and text.rstrip(_BLANKS).endswith(_ENDS[first])


def _one_part(context: RuleContext, slot: TextSlot) -> None:
    try:
        text = canonical(slot.text)
    except JsonRefusedError as refused:
        if refused.reason != "not JSON":
            context.find(
                NAME,
                slot.path,
                "JSON that cannot be rewritten without a loss",
                detail=refused.reason,
                offset=refused.offset,
                fix="write each name once, and numbers as JSON has them",
            )
        return
    if text != slot.text:
        context.rewrite_or_find(
            NAME, slot, text, "JSON in no fixed form", "write it with sorted names and one spacing"
        )
