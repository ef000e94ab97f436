"""Tools sorted by name; in a conversation that goes on, tools that join it go behind those already sent.

Never: `tool_choice`, `strict` or anything inside a tool; a list with a cache mark, whose place says what is cached; a
list with two tools of one name.
"""

import json
from collections.abc import Sequence
from typing import Any

from canon.context import RuleContext
from canon.requests.paths import tool_key
from canon.results import Edit

NAME = "tool_order"


def apply(context: RuleContext) -> None:
    for key in ("tools", "functions"):
        tools = context.draft.body.get(key)
        if isinstance(tools, list) and len(tools) > 1:
            _order(context, key, tools)


def _order(context: RuleContext, key: str, tools: list[Any]) -> None:
    names = [tool_key(tool) for tool in tools]
    if None in names or len(set(names)) < len(names):
        return
    by_name = {name: tool for name, tool in zip(names, tools, strict=True) if name is not None}
    order = _row(context, sorted(by_name))
    if order == names:
        return
    ordered = [by_name[name] for name in order]
    if any("cache_control" in tool for tool in tools):
        context.find(
            NAME, (key,), "tools in no fixed order", detail="left alone, as a cache mark is among them"
        )
    elif context.policy.acts(NAME):
        context.draft.set((key,), ordered)
        context.edits.append(Edit(NAME, key, _shown(names), _shown(order)))
    else:
        context.find(
            NAME,
            (key,),
            "tools in no fixed order",
            values=(_shown(names)[:200], _shown(order)[:200]),
            fix="sort them by name before sending, or let the rule tool_order act",
        )


def _row(context: RuleContext, names: Sequence[str]) -> list[str]:
    """The names in the order in which to send them: sorted, but for those that this conversation sent before."""
    return context.conversation.tool_row(names) if context.conversation else list(names)


def _shown(names: Sequence[str | None]) -> str:
    return json.dumps(names, ensure_ascii=False)
