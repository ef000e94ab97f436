"""Sends conversations through the memory with values that other rules are said to have moved."""

from collections.abc import Sequence
from typing import Any

from canon.context import Moved, RuleContext
from canon.memory import ConversationMemory
from canon.policy import Policy
from canon.requests import view_of
from canon.rules import conversation_memory

FULL = Policy.named("full")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calling(id_: str, arguments: Any, name: str = "stock") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id_, "type": "function", "function": function}],
    }


def tool(id_: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def send(
    memory: ConversationMemory,
    messages: Sequence[Any],
    values: Sequence[str] = (),
    *,
    scope: str = "",
    session: str = "",
    **fields: Any,
) -> dict[str, Any]:
    """The body that goes out, where `values` were moved out of the system text."""
    body = {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, *messages], **fields}
    view = view_of(body)
    assert view is not None
    context = RuleContext(view, FULL)
    context.conversation = memory.open(view, scope=scope, session=session)
    context.moved += [Moved("dynamic_values", "messages[0].content", value) for value in values]
    conversation_memory.apply(context)
    sent: dict[str, Any] = context.draft.body
    return sent


def answer(text: str | None = None, *calls: tuple[str, str, Any]) -> dict[str, Any]:
    """A whole chat response."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in calls
        ]
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}


def texts(body: dict[str, Any], turn: int) -> str:
    """All text of a message; `turn` counts without the system message."""
    content = body["messages"][turn + 1]["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
