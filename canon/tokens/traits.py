"""What one chat template can take, found out by asking it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canon.errors import TemplateError
from canon.tokens.template import ChatTemplate

_TEXT = "what the probe says"
_ARGUMENTS = '{"probe_key": "probe value"}'
_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "A probe.",
        "parameters": {"type": "object", "properties": {"probe_key": {"type": "string"}}},
    },
}


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """How content has to be handed to a template."""

    takes_strings: bool  # `content` as a string
    takes_parts: bool  # `content` as a list of {"type": "text", "text": ...}
    takes_tools: bool
    takes_tool_calls: bool
    takes_argument_text: bool  # `arguments` as JSON text; otherwise as an object
    knows_developer: bool  # the template has something to say about the role `developer`


def find_traits(template: ChatTemplate) -> TemplateTraits:
    as_string = _try(template, [{"role": "user", "content": _TEXT}])
    as_parts = _try(template, [{"role": "user", "content": [{"type": "text", "text": _TEXT}]}])
    takes_parts = as_parts is not None and _TEXT in as_parts and not _shows_parts(as_parts)
    return TemplateTraits(
        # A template that takes neither (it may want a system message first) gets strings, the older form.
        takes_strings=not takes_parts or (as_string is not None and _TEXT in as_string),
        takes_parts=takes_parts,
        takes_tools="tools" in template.names,
        takes_tool_calls=template.mentions("tool_calls"),
        takes_argument_text=_takes_argument_text(template),
        knows_developer=template.mentions("developer"),
    )


def takes_part_kind(template: ChatTemplate, part: Mapping[str, Any]) -> bool:
    """Does the template write something of its own for a part of this kind (an image, say)?"""
    text = {"type": "text", "text": _TEXT}
    without = _try(template, [{"role": "user", "content": [text]}])
    with_part = _try(template, [{"role": "user", "content": [dict(part), text]}])
    return (
        with_part is not None and with_part != without and _TEXT in with_part and not _shows_parts(with_part)
    )


def _shows_parts(text: str) -> bool:
    """Was a list of parts printed instead of read?"""
    return "'type'" in text or '"type"' in text


def _takes_argument_text(template: ChatTemplate) -> bool:
    as_text = _try(template, _called_with(_ARGUMENTS), [_TOOL])
    if as_text is not None and _ARGUMENTS in as_text:
        return True
    as_object = _try(template, _called_with({"probe_key": "probe value"}), [_TOOL])
    return as_object is None or "probe_key" not in as_object


def _called_with(arguments: Any) -> list[dict[str, Any]]:
    # Nine letters and digits: some templates refuse other call ids.
    call = {"id": "probe0001", "type": "function", "function": {"name": "probe_tool", "arguments": arguments}}
    return [
        {"role": "user", "content": _TEXT},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "probe0001", "name": "probe_tool", "content": "done"},
    ]


def _try(
    template: ChatTemplate, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None
) -> str | None:
    try:
        return template.render(messages, tools, add_generation_prompt=True, extra={}, clock=template.clock())
    except TemplateError:
        return None
