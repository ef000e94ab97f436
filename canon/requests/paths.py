"""Where something is in a body: keys and indices, and how people read them."""

from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]  # for example ("messages", 0, "content")


def path_text(body: Any, path: Path) -> str:
    """`messages[0].content`, `tools[lookup].function.parameters`: a tool is named, as positions may change."""
    text = ""
    for depth, step in enumerate(path):
        if isinstance(step, str):
            text += f".{step}" if text else step
        elif path[:depth] == ("tools",):
            text += f"[{tool_name(body['tools'][step]) or step}]"
        else:
            text += f"[{step}]"
    return text


def tool_name(tool: Any) -> str | None:
    """The name of a tool in the form of Chat Completions, Responses or Anthropic messages; None: it has none."""
    if not isinstance(tool, dict):
        return None
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("name")
    return name if isinstance(name, str) else None


def tool_key(tool: Any) -> str | None:
    """What tells a tool from the others of its list: its name, or, of an engine's own without one, its type."""
    if not isinstance(tool, dict):
        return None
    key = tool_name(tool) or tool.get("type")
    return key if isinstance(key, str) else None
