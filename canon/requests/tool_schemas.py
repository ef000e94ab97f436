"""Where the schema of a tool's parameters is, in each of the forms of tools."""

from typing import Any


def schema_keys(tool: dict[str, Any]) -> tuple[str, ...] | None:
    """The keys that lead to the schema; None: the tool has none.

    `function.parameters` in Chat Completions, `parameters` in Responses and in the older `functions`, `input_schema` in
    Anthropic messages.
    """
    function = tool.get("function")
    if isinstance(function, dict):
        return ("function", "parameters") if isinstance(function.get("parameters"), dict) else None
    for key in ("parameters", "input_schema"):
        if isinstance(tool.get(key), dict):
            return (key,)
    return None
