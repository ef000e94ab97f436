"""The chain hash of blocks: one digest for a block together with everything before it."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from cache_core.identity import digest_of
from cache_core.tokens import TOKEN_BYTES, Tokens, as_bytes

_ROOT = "kvgate chain root 1"
_MEDIUM = struct.Struct("<II")  # offset in the block, bytes of the hash


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """An image, a sound or the like in a prompt. Its placeholder ids are the same for all, so its hash counts."""

    offset: int  # tokens from the prompt's start to its first placeholder
    hash: bytes  # of its content, and of how it is processed


def root_hash(identity: bytes) -> bytes:
    """The parent of every first block under an identity's digest (which holds the tenant's salt)."""
    return digest_of(_ROOT, identity)


def chain_hashes(
    root: bytes,
    tokens: Tokens,
    block_size: int,
    media: Sequence[MediaSpan] = (),
    parent: bytes | None = None,
    start: int = 0,
) -> list[bytes]:
    """SHA-256 chain hash of every whole block in `tokens` (int32 [n], contiguous), in order.

    To go on from a known block, give its hash as `parent`, the tokens behind it, and in `start` how many
    tokens come before those. A medium counts in the block its offset lies in, and so in all after it: text
    before it stays shared. Give all of a prompt's media; those before `start` are in `parent` already.
    """
    data, step = as_bytes(tokens), block_size * TOKEN_BYTES
    whole = len(data) // step * step
    extra = _media_by_block(media, start, block_size) if media else {}
    last = root if parent is None else parent
    sha256, hashes = hashlib.sha256, []
    for at in range(0, whole, step):
        # parent and tokens have fixed lengths under one identity, so what follows them is unambiguous
        message = last + data[at : at + step]
        if extra:
            message += extra.get(at // step, b"")
        last = sha256(message).digest()
        hashes.append(last)
    return hashes


def _media_by_block(media: Sequence[MediaSpan], start: int, block_size: int) -> dict[int, bytes]:
    blocks: dict[int, bytes] = {}
    for span in sorted(media, key=lambda span: (span.offset, span.hash)):
        block, offset = divmod(span.offset - start, block_size)
        if block >= 0:
            entry = _MEDIUM.pack(offset, len(span.hash)) + span.hash
            blocks[block] = blocks.get(block, b"") + entry
    return blocks
