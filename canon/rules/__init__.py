"""The rules in the order in which they run. A rule is a module here with one function `apply`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from canon.context import RuleContext
from canon.rules import (
    conversation_memory,
    dynamic_values,
    json_in_text,
    json_parts,
    learned_slots,
    newlines,
    property_order,
    schema_keywords,
    tool_order,
    unicode,
    volatile_headers,
    whitespace,
)

Apply: TypeAlias = Callable[[RuleContext], None]

# A rule asks `context.policy.acts(NAME)`: True, it edits and notes each edit; False, it only reports what it would do.
APPLY: Mapping[str, Apply] = MappingProxyType(
    {
        newlines.NAME: newlines.apply,
        unicode.NAME: unicode.apply,
        whitespace.NAME: whitespace.apply,
        schema_keywords.NAME: schema_keywords.apply,
        dynamic_values.NAME: dynamic_values.apply,
        learned_slots.NAME: learned_slots.apply,
        volatile_headers.NAME: volatile_headers.apply,
        json_parts.NAME: json_parts.apply,
        json_in_text.NAME: json_in_text.apply,
        property_order.NAME: property_order.apply,
        tool_order.NAME: tool_order.apply,
        conversation_memory.NAME: conversation_memory.apply,
    }
)
