"""Grammars that force a tool call, in llguidance's Lark dialect."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine_adapters.base import ToolOptions
from engine_adapters.errors import InvalidRequestError

# As chat templates print JSON, and so what models are used to; no room for endless space.
_JSON_FORM = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class ForcedTool:
    """A tool that may be called."""

    name: str  # as a JSON string
    arguments: str  # Lark for its arguments object


def forced_tools(tools: ToolOptions) -> list[ForcedTool] | None:
    """The tools one of which must be called; None where the choice leaves it open.

    Raises:
        InvalidRequestError: the chosen tool is not offered, none is, or a schema cannot be followed.
    """
    if not tools.named and tools.choice in ("auto", "none"):
        return None
    everyone = tools.choice == "required" and not tools.named
    chosen = [
        ForcedTool(json.dumps(function["name"], ensure_ascii=False), _arguments(function, at))
        for at, function in enumerate(_functions(tools))
        if everyone or function["name"] == tools.choice
    ]
    if not chosen:
        what = "no tools are offered" if everyone else f"no tool is called {tools.choice!r}"
        raise InvalidRequestError(f"tool_choice cannot be met: {what}.", param="tool_choice")
    return chosen


def rules(start: str, calls: Sequence[str]) -> str:
    """A grammar whose `call` is any of `calls`."""
    names = [f"call_{at}" for at in range(len(calls))]
    each = [f"{name}: {call}" for name, call in zip(names, calls, strict=True)]
    return "\n".join([f"start: {start}", "call: " + " | ".join(names), *each])


def _functions(tools: ToolOptions) -> list[Mapping[str, Any]]:
    functions: list[Mapping[str, Any]] = []
    for at, tool in enumerate(tools.tools):
        function = tool.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InvalidRequestError("A tool must be a function with a name.", param=f"tools[{at}].function")
        functions.append(function)
    return functions


def _arguments(function: Mapping[str, Any], at: int) -> str:
    schema = function.get("parameters")
    if schema is None:  # OpenAI: a function without parameters
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
    param = f"tools[{at}].function.parameters"
    if not isinstance(schema, Mapping):
        raise InvalidRequestError("A tool's parameters must be a JSON schema, an object.", param=param)
    # Without `strict`, a keyword that the library does not know only loosens the grammar.
    options = _JSON_FORM | {"lenient": not function.get("strict")}
    whole = {**schema, "type": _object_type(schema, param), "x-guidance": options}
    try:
        text = json.dumps(whole, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"The schema is no JSON: {error}", param=param) from error
    _check(text, param)
    return f"%json {text}"


@lru_cache(maxsize=256)
def _check(schema: str, param: str) -> None:
    # Imported late: a gateway that only reads calls has neither llguidance nor, for the guard's package, torch.
    from llguidance import LLMatcher

    from engine_adapters.embedded.sampling.schema_guard import check_schema, on_deep_stack

    check_schema(schema, param)
    failed, messages = on_deep_stack(
        lambda: LLMatcher.validate_grammar_with_warnings(LLMatcher.grammar_from_json_schema(schema))
    )
    if failed:
        raise InvalidRequestError(f"The schema cannot be followed: {messages[0]}", param=param)


def _object_type(schema: Mapping[str, Any], param: str) -> str:
    declared = schema.get("type", "object")
    if declared != "object" and not (isinstance(declared, list) and "object" in declared):
        raise InvalidRequestError("The schema of a tool's parameters must be of type object.", param=param)
    return "object"
