"""Schemas whose patterns or multiples would take too long to compile are refused; ordinary ones are not."""

from typing import Any

import pytest

from engine_adapters.embedded.sampling.schema_regexes import (
    MAX_COMBINED_PATTERNS,
    MAX_MULTIPLE,
    check_regexes,
)
from engine_adapters.errors import InvalidRequestError


def patterns(count: int) -> list[dict[str, Any]]:
    return [{"type": "string", "pattern": f"a.{{{i}}}b"} for i in range(count)]


def chained(count: int) -> dict[str, Any]:
    """Each definition adds a pattern to the next one."""
    links = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}", **one} for i, one in enumerate(patterns(count))}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{count}": {"type": "string"}}}


def nested(count: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for one in patterns(count):
        schema = {**one, "anyOf": [schema]}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": patterns(MAX_COMBINED_PATTERNS + 1)},
        {"allOf": [{"additionalProperties": one} for one in patterns(MAX_COMBINED_PATTERNS + 1)]},
        {"properties": {"x": {"allOf": patterns(MAX_COMBINED_PATTERNS + 1)}}},
        chained(MAX_COMBINED_PATTERNS + 1),
        nested(MAX_COMBINED_PATTERNS + 1),
        [{"allOf": patterns(MAX_COMBINED_PATTERNS + 1)}],
        {"multipleOf": MAX_MULTIPLE + 1},
        {"items": {"multipleOf": float(MAX_MULTIPLE + 1)}},
        {"multipleOf": 0.1000001},
        {"multipleOf": 10**400 + 1},
        {"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]},
    ],
)
def test_what_takes_too_long_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_regexes(schema, "tools")
    assert refused.value.param == "tools"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{i}": one for i, one in enumerate(patterns(200))}},
        {"anyOf": patterns(200)},
        {"allOf": patterns(MAX_COMBINED_PATTERNS)},
        {"allOf": [{"$ref": "#/$defs/d0"}], "description": "one", "$defs": {"d0": patterns(1)[0]}},
        {"properties": {"pattern": {"type": "string"}, "multipleOf": {"type": "string"}, "allOf": {}}},
        {"multipleOf": MAX_MULTIPLE},
        {"multipleOf": 10**12},
        {"multipleOf": 1e300},
        {"multipleOf": 0.01},
        {"properties": {"a": {"multipleOf": 997}, "b": {"multipleOf": 991}}},
        {"allOf": [{"multipleOf": 0.01}, {"multipleOf": 60}]},
        {"multipleOf": "many"},
        {"multipleOf": True},
        {"multipleOf": -5},
        {"multipleOf": 0},
        True,
        [],
    ],
)
def test_what_compiles_in_no_time_is_taken(schema: Any) -> None:
    check_regexes(schema, "tools")
