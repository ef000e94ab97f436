"""A configuration as plain values: to be shown, and to be compared."""

import hashlib
import re
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

from gateway.config.base import ConfigModel
from gateway.config.model import Config

HIDDEN = "(hidden)"
_SECRET = re.compile(r"key|token$|secret|password|credential", re.IGNORECASE)


def effective(config: Config) -> dict[str, Any]:
    """All keys with what counts, so that a file of them says the same.

    Secrets are never in a file, but maybe in arguments that are passed on as they are: those are hidden.
    """
    values = plain(config)
    for engine in values["engines"]:
        if "arguments" in engine:
            engine["arguments"] = _hidden(engine["arguments"])
    return values


def plain(config: Config) -> dict[str, Any]:
    """As `effective`, with all that stands in the file. For no eyes: arguments may be secrets."""
    values: dict[str, Any] = _plain(config)
    return values


def digest(config: Config) -> str:
    """Equal for equal configurations, wherever their keys come from: 12 hex digits."""
    text = orjson.dumps(plain(config), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:12]


def _plain(part: Any) -> Any:
    if isinstance(part, BaseModel):
        return {name: _plain(getattr(part, name)) for name in type(part).model_fields if _counts(part, name)}
    if isinstance(part, (list, tuple)):
        return [_plain(each) for each in part]
    if isinstance(part, dict):
        return {key: _plain(each) for key, each in part.items()}
    return str(part) if isinstance(part, Path) else part


def _counts(part: BaseModel, name: str) -> bool:
    """What is not written has a default of its own, or the one of a part above."""
    if name in part.model_fields_set:
        return True
    return getattr(part, name) is not None and not (isinstance(part, ConfigModel) and part.inherits)


def _hidden(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: HIDDEN if _SECRET.search(str(key)) else _hidden(each) for key, each in values.items()}
    return [_hidden(each) for each in values] if isinstance(values, list) else values
