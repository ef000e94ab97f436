"""Where two tools, or two schemas, of one name differ, and in which way."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from canon.lint.segments import dump
from canon.requests.paths import Path

Way = Literal["key order", "property order", "list order", "value"]

_DEPTH = 64
_MAPS = (
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
)  # their keys are names


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two values, at `path` below them."""

    path: Path
    way: Way
    before: Any
    after: Any


def differences(old_text: str, new_text: str) -> list[Difference] | None:
    """All differences in the order of the new text; None where a text is no JSON."""
    try:
        return list(_walk(json.loads(old_text), json.loads(new_text), (), named=False))
    except (ValueError, RecursionError):
        return None


def _walk(old: Any, new: Any, path: Path, *, named: bool) -> Iterator[Difference]:
    """`named`: the keys of these objects are names that somebody chose, and their order is meant."""
    if len(path) > _DEPTH or type(old) is not type(new):
        if old != new:
            yield Difference(path, "value", old, new)
    elif isinstance(new, dict):
        yield from _objects(old, new, path, named=named)
    elif isinstance(new, list):
        yield from _lists(old, new, path)
    elif old != new:
        yield Difference(path, "value", old, new)


def _objects(old: dict[str, Any], new: dict[str, Any], path: Path, *, named: bool) -> Iterator[Difference]:
    common = [key for key in new if key in old]
    if common != [key for key in old if key in new]:
        yield Difference(path, "property order" if named else "key order", old, new)
    for key in new:
        if key not in old:
            yield Difference((*path, key), "value", None, new[key])
        else:
            yield from _walk(old[key], new[key], (*path, key), named=not named and key in _MAPS)
    for key in old:
        if key not in new:
            yield Difference((*path, key), "value", old[key], None)


def _lists(old: list[Any], new: list[Any], path: Path) -> Iterator[Difference]:
    if old == new and dump(old) == dump(new):
        return
    if sorted(map(dump, old)) == sorted(map(dump, new)):
        yield Difference(path, "list order", old, new)
    elif len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _walk(before, after, (*path, index), named=False)
    else:
        yield Difference(path, "value", old, new)
