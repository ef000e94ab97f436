"""What an engine's cache holds, as the engine itself tells it: blocks stored, removed, cleared.

vLLM and SGLang publish the same events over ZeroMQ, as batches of MessagePack: `[time, [event, ...], rank]`. An event
is a map with its kind under `type`; in earlier releases a list with its kind first. Needs the extra `events`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from engine_adapters.base import Tier

BlockHash: TypeAlias = (
    int | bytes | str
)  # str: of a group of layers beside the first one, which it names, too


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks of one prefix are now on a tier."""

    hashes: tuple[
        BlockHash, ...
    ]  # one a block, in order; opaque, and the same prefix has others under another salt
    parent: BlockHash | None  # the block before them; None: the prefix begins here
    token_ids: tuple[int, ...]  # of all the blocks
    block_size: int  # tokens
    tier: Tier
    salt: str | None = None
    lora: str | None = None
    # The first ones, which tokens, salt and LoRA tell apart from all others. Behind them are media, or what is unknown
    # here. None: all.
    plain: int | None = None
    whole_prefix: bool = (
        True  # False: of layers that look back over a window only, so that parents may be gone
    )


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks have left a tier."""

    hashes: tuple[BlockHash, ...]
    tier: Tier


@dataclass(frozen=True, slots=True)
class AllCleared:
    """The engine has forgotten every block."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Batches were lost: what is known of this engine may be wrong from here on.

    `batches`: how many; None: the engine has started anew, and nothing that was known of it holds.
    """

    batches: int | None


KvEvent: TypeAlias = BlocksStored | BlocksRemoved | AllCleared


@dataclass(frozen=True, slots=True)
class KvEventBatch:
    """Events in the order in which they happened, of one engine process."""

    seq: int  # counts up by 1 a batch from the engine's start
    at: float  # Unix time, seconds
    rank: int | None  # which of several data-parallel engines; each counts for itself
    events: tuple[KvEvent, ...]
    unknown: int = 0  # events of kinds that are not known here


class MalformedEventsError(ValueError):
    """A message that is no batch of KV events."""


_TIERS: Mapping[str, Tier] = {
    "GPU": "device",
    "CPU": "host",
    "CPU_PINNED": "host",
    "DISK": "disk",
    "STORAGE": "store",
    "EXTERNAL": "store",
}
_LONGEST_HASH = 64  # bytes
_WHOLE = (
    None,
    "full_attention",
    "mla_attention",
    "sink_full_attention",
)  # kinds of layers that need all before
# Fields of events that come as lists, in order.
_LISTED: Mapping[str, tuple[str, ...]] = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
    ),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}


def decode_batch(seq: int, payload: bytes) -> KvEventBatch:
    """One message's events.

    Raises:
        MalformedEventsError: it is none.
    """
    try:
        at, raw_events, *rest = msgspec.msgpack.decode(payload)
        events = [_event(raw) for raw in raw_events]
        if not isinstance(at, int | float) or not math.isfinite(at):
            raise TypeError("a batch begins with its time")  # noqa: TRY301
        rank = rest[0] if rest else None
        known = tuple(event for event in events if event is not None)
        return KvEventBatch(seq, float(at), rank, known, len(events) - len(known))
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedEventsError(
            f"message {seq} is no batch of KV events: {type(error).__name__}"
        ) from error


def _event(raw: Any) -> KvEvent | None:
    fields = _fields(raw)
    reader = _READERS.get(fields["type"])
    return None if reader is None else reader(fields)


def _fields(raw: Any) -> Mapping[str, Any]:
    if isinstance(raw, Mapping):
        return raw
    kind, *values = raw
    return {"type": kind, **dict(zip(_LISTED.get(kind, ()), values, strict=False))}


def _stored(fields: Mapping[str, Any]) -> BlocksStored:
    hashes, tokens = _hashes(fields), tuple(fields["token_ids"])
    block_size, parent = int(fields["block_size"]), fields.get("parent_block_hash")
    if len(tokens) > len(hashes) * block_size:
        raise ValueError("more tokens than blocks hold")
    lora, extra_keys = _lora(fields), fields.get("extra_keys")
    begins = parent is None
    said = _salt_among(extra_keys, lora) if begins else None
    return BlocksStored(
        hashes,
        None if begins else _hash(parent, fields),
        tokens,
        block_size,
        _tier(fields),
        _text(fields.get("cache_salt")) or said,
        lora,
        _plain(extra_keys, lora, said),
        fields.get("kv_cache_spec_kind") in _WHOLE,
    )


def _hashes(fields: Mapping[str, Any]) -> tuple[BlockHash, ...]:
    return tuple(_hash(each, fields) for each in fields["block_hashes"])


def _hash(raw: Any, fields: Mapping[str, Any]) -> BlockHash:
    if not isinstance(raw, int | bytes) or (isinstance(raw, bytes) and len(raw) > _LONGEST_HASH):
        raise TypeError("a block's hash is a number or some bytes")
    group = fields.get("group_idx")
    # Groups of layers call a block by the same hash, and lose it one by one.
    return f"{group}:{raw!r}" if isinstance(group, int) and group else raw


def _lora(fields: Mapping[str, Any]) -> str | None:
    """Releases that do not say its name say its number."""
    name, number = fields.get("lora_name"), fields.get("lora_id")
    return _text(name) or (None if number is None else f"{number!s:.64}")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _salt_among(extra_keys: Sequence[Sequence[Any] | None] | None, lora: str | None) -> str | None:
    """vLLM's extra keys of the first block: the adapter's name, media with their offsets, and the salt as text."""
    first = extra_keys[0] if extra_keys else None
    texts = [key for key in first or () if isinstance(key, str) and key != lora]
    return texts[0] if len(texts) == 1 else None


def _plain(
    extra_keys: Sequence[Sequence[Any] | None] | None, lora: str | None, salt: str | None
) -> int | None:
    """Blocks before the first one that has another key than its LoRA, or its prefix's salt."""
    for place, keys in enumerate(extra_keys or ()):
        known = (lora,) if place else (lora, salt)
        if any(not isinstance(key, str) or key not in known for key in keys or ()):
            return place
    return None


def _removed(fields: Mapping[str, Any]) -> BlocksRemoved:
    return BlocksRemoved(_hashes(fields), _tier(fields))


def _cleared(_: Mapping[str, Any]) -> AllCleared:
    return AllCleared()


_READERS: Mapping[str, Callable[[Mapping[str, Any]], KvEvent]] = {
    "BlockStored": _stored,
    "BlockRemoved": _removed,
    "AllBlocksCleared": _cleared,
}


def _tier(fields: Mapping[str, Any]) -> Tier:
    """A medium nobody knows is shared: no claim is made for this machine."""
    medium = fields.get("medium")
    if fields.get("locality") == "REMOTE":
        return "store"
    return "device" if medium is None else _TIERS.get(str(medium).upper(), "store")
