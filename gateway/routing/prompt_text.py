"""A prompt as bytes, where nobody here has its tokens: a longer conversation begins with the bytes of a shorter one.

Four bytes stand for a token; how many it really was is learned from answers.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

import orjson

_HEADS = ("tools", "functions", "instructions", "system")  # templates write them first
_TURNS = ("messages", "input", "prompt")
_MEDIUM = 256  # characters of what is no text; more are told by their hash, since a model makes no such length of it


def prompt_bytes(body: Mapping[str, Any]) -> bytes:
    """The prompt that `body` makes, media by their hashes."""
    parts = [b"".join(_parts(body[name])) for name in _HEADS if body.get(name)]
    turns = [part for name in _TURNS if body.get(name) for part in _parts(body[name])]
    return b"\0".join([*parts, *turns])


def prompt_seed(scope: str, body: Mapping[str, Any], *, counted: bool, salt: str | None = None) -> bytes:
    """What keeps prompts of the same text apart. `counted`: switches of the template are in the tokens already."""
    names = _SALTS if counted else _SALTS_AND_SWITCHES
    plain = _plain_seed(scope, salt, counted)
    if body.keys().isdisjoint(names):  # as most are
        return plain + b"{}"
    return plain + _dumped({name: body[name] for name in names if body.get(name) is not None})


@lru_cache(maxsize=1024)
def _plain_seed(scope: str, salt: str | None, counted: bool) -> bytes:
    return orjson.dumps([scope, salt, counted])


_SALTS = ("cache_salt", "extra_key", "lora_path", "previous_response_id", "conversation")
_SWITCHES = (
    "chat_template_kwargs",
    "reasoning_effort",
    "add_generation_prompt",
    "documents",
    "response_format",
)
_SALTS_AND_SWITCHES = (*_SALTS, *_SWITCHES)


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, list) and value and isinstance(value[0], int):
        yield _dumped(value)[:-1]  # token ids: a longer prompt goes on where the bracket stood
    elif isinstance(value, list):
        for item in value:
            yield _part(item)
    else:
        yield _dumped(value)


def _part(item: Any) -> bytes:
    content = item.get("content") if isinstance(item, dict) else None
    if not isinstance(content, list):
        return _dumped(item)
    rest = {name: value for name, value in item.items() if name != "content"}
    return b"".join([_dumped(rest), *(_short(part) for part in content)])


def _short(part: Any) -> bytes:
    """Text as it is, else a hash of what is long."""
    written = _dumped(part)
    is_text = isinstance(part, str) or (isinstance(part, dict) and "text" in str(part.get("type", "")))
    return written if is_text or len(written) <= _MEDIUM else sha256(written).hexdigest().encode()


def _dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):  # half a surrogate pair, a number of 30 digits
        return _written(value)


def _written(value: Any) -> bytes:
    try:
        return repr(value).encode("utf-8", "backslashreplace")
    except RecursionError:
        return os.urandom(16)  # what cannot be told is like nothing else
