"""Salts keep tenants apart in an engine's cache: requests share blocks only under one salt."""

import hashlib
from collections.abc import Mapping

import orjson

from engine_adapters.remote.relay import RelayRequest


def salt_values(request: RelayRequest, key: str = "cache_salt") -> Mapping[str, bytes]:
    """What to set upstream. A client's own salt divides its tenant's part further, and never leaves it."""
    if request.salt is None:
        return {}
    own = request.fields().get(key)
    salt = request.salt if own is None else combined(request.salt, own)
    return {key: orjson.dumps(salt)}


def combined(salt: str, own: object) -> str:
    """One salt of two, injective: neither part can be chosen so that it meets another pair."""
    text = orjson.dumps([salt, own], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()
