"""pydantic's findings, said the way the OpenAI API says them."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from gateway.errors import ApiError, invalid

_MAX_PARAM = 200  # characters; a client may choose a key of any length
_MAX_NAMES = 5  # unknown ones in a log line
_NAME = re.compile(r"[A-Za-z0-9_]{1,40}")


class WireModel(BaseModel):
    """Something a client sent: types are not coerced, unknown fields are kept and ignored."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


Model = TypeVar("Model", bound=WireModel)


def validate(model: type[Model], body: Mapping[str, Any]) -> Model:
    """`body` as `model`; raises ApiError 400 whose param names the first field at fault."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _refusal(first) from None


def unknown_names(body: WireModel) -> str | None:
    """Names at the top of a body which nothing here reads, for a log line; None where all are known.

    At most five, and none that could be text instead of a name.
    """
    names = sorted(name if _NAME.fullmatch(name) else "?" for name in body.model_extra or ())
    shown = ",".join(names[:_MAX_NAMES])
    return f"{shown},..." if len(names) > _MAX_NAMES else shown or None


def _refusal(finding: ErrorDetails) -> ApiError:
    param = field_path(finding["loc"])[:_MAX_PARAM]
    if finding["type"] == "missing":
        return invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    code = "invalid_type" if finding["type"].endswith("_type") else "invalid_value"
    text = finding["msg"].removeprefix("Value error, ")
    text = text[:1].lower() + text[1:]
    return invalid(f"Invalid value for '{param}': {text}.", param, code)


def field_path(location: tuple[str | int, ...]) -> str:
    """`("messages", 0, "<user>", "content")` -> `messages[0].content`; angle brackets mark a union's tags."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not (part.startswith("<") and part.endswith(">")):
            path += f".{part}" if path else part
    return path
