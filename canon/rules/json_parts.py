"""A system part or a tool result that is JSON as a whole gets its canonical form: members by name, no blanks.

Never: where something might be lost (a name twice, NaN, deep nesting: reported); an output form, an example, a schema;
user and assistant text; tool-call arguments.
"""

from collections.abc import Iterator

from canon.context import RuleContext
from canon.errors import JsonRefusedError
from canon.lossless import canonical
from canon.requests.view import TextSlot
from canon.rules.json_forms import may_show_form
from canon.text import may_ask_for_form

NAME = "json_parts"

_BLANKS = " \t\r\n"
_ENDS = {"{": "}", "[": "]"}


def apply(context: RuleContext) -> None:
    for slot in [*_system_parts(context), *context.view.tool_results()]:
        if _looks_like_json(slot.text):
            _one_part(context, slot)


def _system_parts(context: RuleContext) -> Iterator[TextSlot]:
    """System texts that hold data, not a form of what to write."""
    before = ""
    for slot in context.view.system_texts():
        if _looks_like_json(slot.text) and not (
            may_ask_for_form(_last_line(before)) or may_show_form(slot.text)
        ):
            yield slot
        before = slot.text


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
