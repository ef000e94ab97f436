"""Bounds on what a client may hand to the grammar compiler, checked before it sees it.

The compiler follows `$ref` by recursion on the native stack. A long chain of references overflows it, and no
handler can catch that. So the deepest it could go is bounded here, and it gets a stack with room for so much.
"""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from engine_adapters.embedded.sampling.schema_regexes import check_regexes
from engine_adapters.errors import InvalidRequestError

MAX_TEXT = 256 * 1024  # characters of one schema or grammar
MAX_NESTING = 100  # levels of one JSON document
MAX_OPTIONAL = 1000  # optional properties of one object: each may come next, so each costs in every step
_MAX_DESCENT = 16_000  # levels, references followed
_STACK_BYTES = 128 * 1024 * 1024  # address space, not memory; 3 to 4 KiB a level were measured

Result = TypeVar("Result")

_stack_size_lock = threading.Lock()


def check_schema(text: str, param: str) -> None:
    """Refuse a JSON schema that is no JSON, is too large, runs too deep or takes too long to compile.

    Raises:
        InvalidRequestError: with `param`.
    """
    check_text(text, param)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the schema is not valid JSON: {error}", param=param) from error
    _check_descent(schema, param)
    check_regexes(schema, param)


def check_embedded_schemas(lark: str, param: str) -> None:
    """`check_schema` for every `%json {...}` in a Lark grammar, all of them together.

    Raises:
        InvalidRequestError: with `param`.
    """
    check_text(lark, param)
    try:
        schemas = list(_embedded(lark))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"a schema in the grammar is not valid JSON: {error}", param=param
        ) from error
    _check_descent(schemas, param)
    check_regexes(schemas, param)


def check_text(text: str, param: str) -> None:
    """Refuse more than MAX_TEXT characters with InvalidRequestError."""
    if len(text) > MAX_TEXT:
        raise InvalidRequestError(
            f"the schema has {len(text)} characters, {MAX_TEXT} are allowed", param=param
        )


def on_deep_stack(work: Callable[[], Result]) -> Result:
    """Run `work` in a thread of its own with a large stack, and return or raise what it does."""
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            failure.append(error)

    with _stack_size_lock:  # the size is the process's, for the next thread to start
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=run, name="grammar-compile", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if failure:
        if isinstance(failure[0], Exception):
            raise failure[0]
        raise RuntimeError("a native library gave up") from failure[0]  # its panics are no Exceptions
    return outcome[0]


def _embedded(lark: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    at = lark.find("%json")
    while at >= 0:
        start = at + len("%json")
        start += len(lark[start:]) - len(lark[start:].lstrip())
        if lark.startswith("{", start):
            yield decoder.raw_decode(lark, start)[0]
        at = lark.find("%json", start)


def _check_descent(schema: Any, param: str) -> None:
    depth, references = 0, set()
    pending = [(schema, 1)]
    while pending:
        value, level = pending.pop()
        depth = max(depth, level)
        if isinstance(value, dict):
            _check_optional(value, param)
            references.add(value["$ref"] if isinstance(value.get("$ref"), str) else None)
            pending.extend((child, level + 1) for child in value.values())
        elif isinstance(value, list):
            pending.extend((child, level + 1) for child in value)
    if depth > MAX_NESTING:
        raise InvalidRequestError(
            f"the schema is nested {depth} deep, {MAX_NESTING} is the limit", param=param
        )
    # Any way down enters each reference once, and goes at most as deep as the document inside it.
    if depth * (len(references) + 1) > _MAX_DESCENT:
        raise InvalidRequestError("the schema's references ($ref) are too many for its depth", param=param)


def _check_optional(schema: dict[str, Any], param: str) -> None:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    optional = len(properties.keys() - needed)
    if optional > MAX_OPTIONAL:
        message = f"an object has {optional} optional properties, {MAX_OPTIONAL} are allowed"
        raise InvalidRequestError(message, param=param)
