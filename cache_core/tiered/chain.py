"""The headers under which a prompt's blocks are filed outside the device."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from cache_core.block_hash import chain_hashes, root_hash
from cache_core.block_header import BlockHeader
from cache_core.identity import CacheIdentity, digest_of
from cache_core.tiered.hash_memory import HashMemory
from cache_core.tokens import TOKEN_BYTES, Tokens, as_bytes

_SALT = "kvgate scope salt 1"
_PIECE = 512  # blocks hashed before others are let in


class PromptChain:
    """The headers of one prompt's whole blocks; hashes are made as far as they are asked for.

    Args:
        tokens: int32 [n], from the prompt's start, contiguous.
        known: hashes of its first blocks; grows.
        breathe: called between pieces of the work.
    """

    def __init__(
        self,
        identity: bytes,
        tokens: Tokens,
        block_size: int,
        known: list[bytes],
        breathe: Callable[[], object],
    ) -> None:
        self.root = root_hash(identity)
        self.tokens = tokens
        self.hashes = known
        self.blocks = len(tokens) // block_size
        self._identity = identity
        self._size = block_size
        self._breathe = breathe

    def headers(self, first: int, last: int) -> list[BlockHeader]:
        """Of blocks [first, last)."""
        self.hash_to(last)
        data, step, own = as_bytes(self.tokens), self._size * TOKEN_BYTES, self.hashes
        return [
            BlockHeader(
                identity=self._identity,
                parent=own[block - 1] if block else self.root,
                own=own[block],
                tokens=bytes(data[block * step : (block + 1) * step]),
            )
            for block in range(first, last)
        ]

    def hash_to(self, last: int) -> None:
        """Let `hashes` be those of `last` blocks at least."""
        hashes, size = self.hashes, self._size
        while len(hashes) < last:
            done = len(hashes)
            part = self.tokens[done * size : min(done + _PIECE, last) * size]
            hashes.extend(chain_hashes(self.root, part, size, parent=hashes[-1] if done else None))
            self._breathe()


class ScopeChains:
    """Chain hashes per scope: every scope has an identity of its own, since its salt is in it.

    Args:
        identity: the model's, its salt being the server's own.
    """

    def __init__(self, identity: CacheIdentity) -> None:
        self._block_size = identity.block_size
        self._memory = HashMemory(identity.block_size)
        self._digest_of = _digests(identity)

    def digest(self, scope: str) -> bytes:
        """The identity's digest [32] for one scope."""
        return self._digest_of(scope)

    def replace(self, identity: CacheIdentity) -> None:
        """From here on everything is filed under another identity, which has the same block size."""
        self._digest_of = _digests(identity)

    def prompt(self, scope: str, tokens: Tokens, breathe: Callable[[], object] = lambda: None) -> PromptChain:
        """A prompt's chain, with what is remembered of it."""
        identity = self.digest(scope)
        known = self._memory.known(root_hash(identity), tokens)
        return PromptChain(identity, tokens, self._block_size, known, breathe)

    def remember(self, chain: PromptChain) -> None:
        """Keep what was hashed of a prompt."""
        self._memory.remember(chain.root, chain.tokens, chain.hashes)

    def forget(self, scope: str) -> None:
        """Nothing is remembered of a scope's prompts."""
        self._memory.forget(root_hash(self.digest(scope)))

    def headers(self, scope: str, tokens: Tokens) -> list[BlockHeader]:
        """Headers of every whole block in `tokens` (int32 [n], from the prompt's start)."""
        chain = self.prompt(scope, tokens)
        headers = chain.headers(0, chain.blocks)
        self.remember(chain)
        return headers


def _digests(identity: CacheIdentity) -> Callable[[str], bytes]:
    """Digests of scopes, remembered, of one identity: whoever still asks this one leaves no trace in the next."""

    @lru_cache(maxsize=4096)
    def digest(scope: str) -> bytes:
        return replace(identity, salt=digest_of(_SALT, [identity.salt, scope])).digest

    return digest
