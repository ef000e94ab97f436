"""Salts keep tenants apart in an engine's cache: requests share blocks only under one salt."""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from engine_adapters.remote.relay import RelayRequest

SALT = "cache_salt"
NAMES = (SALT, "extra_key")  # what clients may call theirs: vLLM and SGLang, and SGLang's second one


def salt_values(request: RelayRequest) -> dict[str, bytes]:
    """What to set upstream. A client's own salt divides its tenant's part further, and never leaves it."""
    if request.salt is None:
        return {}
    fields = request.fields()
    own = {name: fields[name] for name in NAMES if fields.get(name) is not None}
    return {SALT: orjson.dumps(_salt(request.salt, own, several=request.route == "completions"))}


def salt_upstream(salt: str | None, body: Mapping[str, Any]) -> str | None:
    """The one salt that the engine gets with one prompt; None: none.

    Raises ValueError where that is not one text.
    """
    own = {name: body[name] for name in NAMES if body.get(name) is not None}
    found: object = own.pop(SALT, None) if salt is None else _salt(salt, own, several=True)
    if (salt is None and own) or not (found is None or isinstance(found, str)):
        raise ValueError("several salts, or one of a kind that events do not tell")
    return found or None


def salts_taken_out(request: RelayRequest, *, salted: bool) -> tuple[str, ...]:
    """Names that do not go upstream: what they say is in the salt that was set, or the engine keeps nothing apart."""
    if request.salt is None:
        return ()
    fields = request.fields()
    return tuple(name for name in NAMES if name in fields and not (salted and name == SALT))


def combined(salt: str, own: object) -> str:
    """One salt of two, injective: neither part can be chosen so that it meets another pair."""
    text = orjson.dumps([salt, own], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()


def _salt(salt: str, own: dict[str, Any], *, several: bool) -> str | list[str]:
    """One, or one for each prompt where the client has one for each. Never empty: that would be none."""
    if not own:
        return salt
    lengths = {len(each) for each in own.values() if isinstance(each, list)}
    count = lengths.pop() if several and len(lengths) == 1 else 0
    if not count:
        return _one(salt, own)
    return [
        _one(salt, {name: each[i] if isinstance(each, list) else each for name, each in own.items()})
        for i in range(count)
    ]


def _one(salt: str, own: dict[str, Any]) -> str:
    return combined(salt, own[SALT] if own.keys() == {SALT} else own)
