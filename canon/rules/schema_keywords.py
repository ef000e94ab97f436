"""The keywords of tool schemas, and the fields around them, in one order: a map in Go or Rust writes them in any.

Never: the order of the names in `properties` and other maps of schemas (it is the output's order under constrained
decoding); of lists (`enum`, `required`, `anyOf`); anything inside values that are data (`default`, `const`,
`examples`); the values of keywords that are not known; `response_format`; tool-call arguments.
"""

from typing import Any

from canon.context import RuleContext
from canon.errors import CanonError
from canon.requests.paths import Path
from canon.requests.tool_schemas import schema_keys
from canon.results import Edit
from canon.shown import json_of

NAME = "schema_keywords"

_MAX_DEPTH = 100  # schemas in one another; a deeper one is left alone

# The order in which most writers put them; unknown ones come after these, by name.
_TOOL_FIELDS = (
    "type",
    "function",
    "name",
    "description",
    "parameters",
    "input_schema",
    "strict",
    "cache_control",
)
_KEYWORDS = (
    *(
        "$schema",
        "$id",
        "$anchor",
        "$ref",
        "$dynamicRef",
        "$comment",
        "type",
        "format",
        "title",
        "description",
    ),
    *(
        "enum",
        "const",
        "properties",
        "patternProperties",
        "required",
        "additionalProperties",
        "propertyNames",
    ),
    *("items", "prefixItems", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "default", "examples"),
    *("$defs", "definitions"),
)
# Keywords by what their value is (JSON Schema 2020-12 core and applicator vocabularies, and draft 7's).
_SCHEMA = frozenset(
    (
        *(
            "items",
            "additionalItems",
            "unevaluatedItems",
            "contains",
            "additionalProperties",
            "propertyNames",
            "not",
        ),
        *("unevaluatedProperties", "if", "then", "else", "contentSchema"),
    )
)
_SCHEMA_LIST = frozenset(("anyOf", "oneOf", "allOf", "prefixItems", "items"))
_SCHEMA_MAP = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)


def _places(names: tuple[str, ...]) -> dict[str, str]:
    # A known name sorts by its place, before every other name: no other begins with U+0000 and two digits.
    return {name: f"\0{place:02}" for place, name in enumerate(names)}


_TOOL_PLACES, _KEYWORD_PLACES = _places(_TOOL_FIELDS), _places(_KEYWORDS)


def apply(context: RuleContext) -> None:
    for key in ("tools", "functions"):
        tools = context.draft.body.get(key)
        for at, tool in enumerate(tools if isinstance(tools, list) else ()):
            if isinstance(tool, dict):
                _one_tool(context, (key, at), tool)


def _one_tool(context: RuleContext, path: Path, tool: dict[str, Any]) -> None:
    try:
        ordered = _ordered_tool(tool)
    except _TooDeepError:
        context.find(NAME, path, "a schema nested too deeply", detail=f"past {_MAX_DEPTH} levels: left alone")
        return
    if ordered is tool:
        return
    if context.policy.acts(NAME):
        context.draft.set(path, ordered)
        context.edits.append(Edit(NAME, context.where(path), json_of(tool), json_of(ordered)))
    else:
        context.find(NAME, path, "keywords of a schema in no fixed order", fix=f"let the rule {NAME} act")


def _ordered_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """The tool with its fields and its schema's keywords in order; the same object if they were."""
    keys = schema_keys(tool)
    if keys:
        inner = tool[keys[0]] if len(keys) == 2 else tool
        schema = _ordered(inner[keys[-1]], 0)
        if schema is not inner[keys[-1]]:
            inner = {**inner, keys[-1]: schema}
            tool = {**tool, keys[0]: inner} if len(keys) == 2 else inner
    function = tool.get("function")
    if isinstance(function, dict) and (sorted_function := _sorted(function, _TOOL_PLACES)) is not function:
        tool = {**tool, "function": sorted_function}
    return _sorted(tool, _TOOL_PLACES)


def _ordered(schema: Any, depth: int) -> Any:
    """A schema with its keywords, and those of all schemas in it, in order; the same object if they were."""
    if not isinstance(schema, dict):
        return schema  # true and false are schemas too
    if depth > _MAX_DEPTH:
        raise _TooDeepError
    changed: dict[str, Any] = {}
    for keyword, value in schema.items():
        if isinstance(value, dict):
            ordered: Any = _ordered_in_map(keyword, value, depth)
        elif isinstance(value, list) and keyword in _SCHEMA_LIST:
            ordered = _ordered_all(value, depth)
        else:
            continue
        if ordered is not value:
            changed[keyword] = ordered
    return _sorted({**schema, **changed} if changed else schema, _KEYWORD_PLACES)


def _ordered_in_map(keyword: str, value: dict[str, Any], depth: int) -> dict[str, Any]:
    if keyword in _SCHEMA_MAP:
        new = {name: _ordered(schema, depth + 1) for name, schema in value.items()}
        return value if all(map(_same, new.values(), value.values())) else new
    ordered: dict[str, Any] = _ordered(value, depth + 1) if keyword in _SCHEMA else value
    return ordered


def _ordered_all(schemas: list[Any], depth: int) -> list[Any]:
    new = [_ordered(schema, depth + 1) for schema in schemas]
    return schemas if all(map(_same, new, schemas)) else new


def _sorted(fields: dict[str, Any], places: dict[str, str]) -> dict[str, Any]:
    names = list(fields)
    ordered = sorted(names, key=lambda name: places.get(name, name))
    return fields if names == ordered else {name: fields[name] for name in ordered}


def _same(left: object, right: object) -> bool:
    return left is right


class _TooDeepError(CanonError):
    """Schemas are nested deeper than they are followed."""
