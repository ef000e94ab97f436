"""An option: the names in a tool schema's `properties` go out in the order in which their set was first seen.

It is off unless it is switched to act, and needs a memory: the order of properties is the order in which a model under
constrained decoding writes them, so no order is better than another, and none is made up here. Never: `required`,
`enum`, `response_format`; properties of a set that was not seen before.
"""

import hashlib
import json
from typing import Any

from canon.context import RuleContext
from canon.memory.conversation import Conversation
from canon.requests.paths import Path
from canon.requests.tool_schemas import schema_keys
from canon.results import Edit
from canon.shown import json_of

NAME = "property_order"


def apply(context: RuleContext) -> None:
    conversation = context.conversation
    if conversation is None or not context.policy.acts(NAME):
        return
    for key in ("tools", "functions"):
        tools = context.draft.body.get(key)
        for at, tool in enumerate(tools if isinstance(tools, list) else ()):
            keys = schema_keys(tool) if isinstance(tool, dict) else None
            if keys:
                _one_schema(context, conversation, (key, at, *keys))


def _one_schema(context: RuleContext, conversation: Conversation, path: Path) -> None:
    for place in _property_maps(context.draft.get(path), path):
        properties = context.draft.get(place)
        order = _first_seen(conversation, context.where(place), list(properties))
        if order != list(properties):
            context.draft.set(place, {name: properties[name] for name in order})
            context.edits.append(Edit(NAME, context.where(place), json_of(list(properties)), json_of(order)))


def _property_maps(schema: Any, path: Path) -> list[Path]:
    """The paths of all `properties` with two names or more, outer ones first."""
    found: list[Path] = []
    stack: list[tuple[Any, Path, bool]] = [(schema, path, False)]
    while stack:
        value, place, is_map = stack.pop()
        if len(place) > len(path) + _MAX_DEPTH:
            continue
        if isinstance(value, list):
            stack += [(item, (*place, index), False) for index, item in enumerate(value)]
        elif isinstance(value, dict):
            if is_map and len(value) > 1:
                found.append(place)
            for name, child in value.items():
                if is_map or name in _WITH_SCHEMAS:
                    stack.append((child, (*place, name), not is_map and name == "properties"))
    return sorted(found, key=len)


_MAX_DEPTH = 100
_WITH_SCHEMAS = frozenset(
    ("properties", "items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties")
)


def _first_seen(conversation: Conversation, where: str, names: list[str]) -> list[str]:
    named = json.dumps([where, sorted(names)]).encode()
    first = json.loads(
        conversation.first_form("properties", hashlib.sha256(named).digest(), json.dumps(names))
    )
    return [str(name) for name in first]
