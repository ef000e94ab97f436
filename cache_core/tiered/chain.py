"""The headers under which a prompt's blocks are filed outside the device."""

from dataclasses import replace
from functools import lru_cache

from cache_core.block_hash import chain_hashes, root_hash
from cache_core.block_header import BlockHeader
from cache_core.identity import CacheIdentity, digest_of
from cache_core.tokens import TOKEN_BYTES, Tokens, as_bytes

_SALT = "kvgate scope salt 1"


class ScopeChains:
    """Chain hashes per scope: every scope has an identity of its own, since its salt is in it.

    Args:
        identity: the model's, its salt being the server's own.
    """

    def __init__(self, identity: CacheIdentity) -> None:
        self._identity = identity
        self._digest_of = lru_cache(maxsize=4096)(self._make_digest)  # any thread may ask

    def digest(self, scope: str) -> bytes:
        """The identity's digest [32] for one scope."""
        return self._digest_of(scope)

    def _make_digest(self, scope: str) -> bytes:
        salt = digest_of(_SALT, [self._identity.salt, scope])
        return replace(self._identity, salt=salt).digest

    def headers(self, scope: str, tokens: Tokens, first: int = 0) -> list[BlockHeader]:
        """Headers of every whole block in `tokens` (int32 [n], from the prompt's start), from block `first` on."""
        identity, size = self.digest(scope), self._identity.block_size
        root = root_hash(identity)
        own = chain_hashes(root, tokens, size)
        data, step = as_bytes(tokens), size * TOKEN_BYTES
        return [
            BlockHeader(
                identity=identity,
                parent=own[block - 1] if block else root,
                own=own[block],
                tokens=bytes(data[block * step : (block + 1) * step]),
            )
            for block in range(first, len(own))
        ]
