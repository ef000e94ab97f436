"""The chain hash of blocks: one digest for a block together with everything before it."""

import hashlib

from cache_core.identity import digest_of
from cache_core.tokens import TOKEN_BYTES, Tokens, as_bytes

_ROOT = "kvgate chain root 1"


def root_hash(identity: bytes) -> bytes:
    """The parent of every first block under an identity's digest (which holds the tenant's salt)."""
    return digest_of(_ROOT, identity)


def chain_hashes(
    root: bytes,
    tokens: Tokens,
    block_size: int,
    parent: bytes | None = None,
) -> list[bytes]:
    """SHA-256 chain hash of every whole block in `tokens` (int32 [n], contiguous), in order.

    To go on from a known block, give its hash as `parent` and the tokens behind it. Media are in the tokens, see
    `cache_core.media`.
    """
    data, step = as_bytes(tokens), block_size * TOKEN_BYTES
    whole = len(data) // step * step
    last = root if parent is None else parent
    sha256, hashes = hashlib.sha256, []
    for at in range(0, whole, step):
        # parent and tokens have fixed lengths under one identity, so what follows them is unambiguous
        last = sha256(last + data[at : at + step]).digest()
        hashes.append(last)
    return hashes
