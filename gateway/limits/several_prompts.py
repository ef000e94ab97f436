"""Bodies with several prompts: each is a request to the engine, whatever it comes in."""

from collections.abc import Mapping
from typing import Any

from gateway.errors import invalid
from gateway.limits.tenant_limits import TenantLimits
from gateway.transport.record import RequestRecord

# By route, the fields whose lists are prompts.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "completions": ("prompt",),
    "embeddings": ("input",),
    "rerank": ("documents", "texts"),  # each is read with the query before it
}


def prompts_in(route: str | None, body: Mapping[str, Any]) -> tuple[str, int]:
    """The field that has them, and how many they are, at least 1; the body is not checked yet."""
    field, most = "", 1
    for name in _FIELDS.get(route or "", ()):
        number = _number(body.get(name), ids=route != "rerank")
        if number > most:
            field, most = name, number
    return field, most


def token_ids_in(route: str | None, body: Mapping[str, Any]) -> int:
    """How many token ids stand in the place of text."""
    if route is None or route == "rerank":
        return 0
    return sum(_ids(body.get(name)) for name in _FIELDS.get(route, ()))


def check_prompts(route: str, body: Mapping[str, Any], limits: TenantLimits, record: RequestRecord) -> None:
    """Raises ApiError 400 for more than the tenant may send in one body."""
    most = limits.max_prompts
    if most is None:
        return
    field, number = prompts_in(route, body)
    if number > most:
        record.limited = "prompts"
        message = f"Too many prompts in one request: '{field}' has {number}, and max_prompts is {most}."
        raise invalid(message, field, "too_many_prompts")


def _number(value: Any, *, ids: bool) -> int:
    if isinstance(value, dict):  # of parts, as vLLM takes documents
        value = value.get("content")
    if not isinstance(value, list) or not value:
        return 1
    return 1 if ids and _is_id(value[0]) else len(value)


def _ids(value: Any) -> int:
    if not isinstance(value, list) or not value:
        return 0
    if _is_id(value[0]):
        return len(value)
    return sum(len(each) for each in value if isinstance(each, list))


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
