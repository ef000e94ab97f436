"""From what an engine publishes to what the index can use: only what a prompt's tokens and salt tell apart."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np
import orjson

from engine_adapters.base import Tier
from engine_adapters.remote.kv_events import AllCleared, BlocksRemoved, BlocksStored, KvEvent
from gateway.routing.kv_feed import BlockName

_TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Stored(NamedTuple):
    """Consecutive blocks that the replica holds now."""

    names: Sequence[BlockName]
    parent: BlockName | None  # None: the prefix begins here
    tokens: bytes  # "<i4"; empty: as they were told before
    seed: bytes
    tier: Tier


class Removed(NamedTuple):
    """Blocks that have left a tier."""

    names: Sequence[BlockName]
    tier: Tier


class Cleared(NamedTuple):
    """The replica holds nothing, or what it holds is not known any more."""


class Silent(NamedTuple):
    """Nothing is heard of the replica: until it is, what it holds is guessed from its answers."""


class Complete(NamedTuple):
    """What the replica has said is all that it holds: it was heard from its start on, or since its cache was empty."""


Change: TypeAlias = Stored | Removed | Cleared | Silent | Complete


def seed_of(salt: str | None) -> bytes:
    """Of prompts whose blocks events tell: those of one salt, whoever asks. LoRA and media have no such seed."""
    return orjson.dumps(["told", salt])


def changes_of(events: Sequence[KvEvent]) -> tuple[list[Change], int]:
    """The changes in their order, and how many events are of no use here.

    Those are of LoRA, of media and of layers that keep a window only; and of tokens that are no ids.
    """
    made = [_change(event) for event in events]
    found = [change for change in made if change is not None]
    return found, len(made) - len(found)


def in_parts(changes: Iterable[Change], most: int) -> Iterator[list[Change]]:
    """The same in their order, some `most` blocks at a time: to take in many of them takes long."""
    part, count = list[Change](), 0
    for change in changes:
        for piece in _pieces(change, most):
            part.append(piece)
            count += len(piece.names) if isinstance(piece, Stored | Removed) else 1
            if count >= most:
                yield part
                part, count = [], 0
    if part:
        yield part


def _pieces(change: Change, most: int) -> Iterator[Change]:
    if not isinstance(change, Stored | Removed) or len(change.names) <= most:
        yield change
        return
    for at in range(0, len(change.names), most):
        names = change.names[at : at + most]
        if isinstance(change, Removed):
            yield change._replace(names=names)
            continue
        size = len(change.tokens) // len(change.names)  # bytes of a block
        parent = change.names[at - 1] if at else change.parent
        tokens = change.tokens[at * size : (at + most) * size]
        yield change._replace(names=names, parent=parent, tokens=tokens)


def _change(event: KvEvent) -> Change | None:
    match event:
        case AllCleared():
            return Cleared()
        case BlocksRemoved():
            return Removed(event.hashes, event.tier)
        case BlocksStored():
            return _stored(event)


def _stored(event: BlocksStored) -> Stored | None:
    if event.lora is not None or not event.whole_prefix or not event.hashes:
        return None
    if not event.token_ids:  # a copy on another tier
        return Stored(event.hashes, event.parent, b"", seed_of(event.salt), event.tier)
    if len(event.token_ids) != len(event.hashes) * event.block_size:
        return None
    plain = len(event.hashes) if event.plain is None else event.plain
    try:
        ids = msgspec.convert(event.token_ids[: plain * event.block_size], list[_TokenId])
    except msgspec.ValidationError:
        return None  # media stand in for tokens there
    if not ids:
        return None
    tokens = np.array(ids, dtype="<i4").tobytes()
    return Stored(event.hashes[:plain], event.parent, tokens, seed_of(event.salt), event.tier)
