"""The keys of a prompt's beginnings: one a chunk, and finer ones where the first difference may lie.

A prompt of 250,000 tokens has 488 chunks, which are hashed about as fast as its bytes alone; 16-token blocks would take
five times as long. So blocks are hashed only inside the chunks where two prompts part.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from struct import Struct
from typing import TypeAlias

import numpy as np

UNIT = 4  # bytes of a token: an int32 id, or where there are none, of text
BLOCK = 16  # tokens: the finest difference that is told
CHUNK = 512  # tokens

Key: TypeAlias = int  # 64 bits of a hash; even: a chunk's, odd: a block's
# Digests of the whole chunks of some data, in order, behind a first one.
Chaining: TypeAlias = Callable[[bytes, memoryview], list[bytes]]

_DIGEST = 32  # bytes
_FIRST = Struct("<Q24x")  # of a digest, what a key is made of
_CHUNK_BYTES = CHUNK * UNIT
_BLOCK_BYTES = BLOCK * UNIT


def root_of(seed: bytes) -> bytes:
    """What a first chunk goes on from."""
    return sha256(b"kvgate route 1" + seed).digest()


def continued(parent: bytes, chunk: bytes) -> tuple[bytes, Key]:
    """A whole chunk's digest behind its parent's, and its key."""
    # Both have fixed lengths, so nothing else can be read from the same bytes.
    digest = sha256(parent + chunk).digest()
    return digest, int.from_bytes(digest[:8], "little") & ~1


def chunk_digests(parent: bytes, data: bytes | memoryview) -> list[bytes]:
    """Of the whole chunks of `data`, each as `continued` has it, without its call for each."""
    last, digests = parent, []
    for at in range(0, len(data) - _CHUNK_BYTES + 1, _CHUNK_BYTES):
        last = sha256(last + data[at : at + _CHUNK_BYTES]).digest()
        digests.append(last)
    return digests


class PromptChain:
    """One prompt as keys. Equal keys are equal beginnings, under one seed.

    Args:
        seed: what keeps prompts apart that share nothing: scope, salt, LoRA; any length.
        data: the prompt, `UNIT` bytes a token, media among them as `cache_core.media` writes them. Not copied.
        chaining: as `chunk_digests`, which what was hashed before may be known to.
    """

    __slots__ = ("_blocks", "_data", "_digests", "keys", "root", "tokens")

    def __init__(self, seed: bytes, data: bytes | memoryview, chaining: Chaining = chunk_digests) -> None:
        self._start(root_of(seed), data, chaining)

    @classmethod
    def behind(cls, digest: bytes, data: bytes) -> "PromptChain":
        """What goes on from a chunk's digest."""
        chain = cls.__new__(cls)
        chain._start(digest, data, chunk_digests)
        return chain

    def _start(self, root: bytes, data: bytes | memoryview, chaining: Chaining) -> None:
        self.root = root
        self._data = memoryview(data).cast("B")
        self.tokens = len(self._data) // UNIT
        self._digests = chaining(root, self._data)
        self.keys = _even_keys(self._digests)  # of whole chunks, in order
        self._blocks: dict[int, list[Key]] = {}

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """For another process, which need not hash it again."""
        return self.root, bytes(self._data), b"".join(self._digests)

    @classmethod
    def load(cls, dumped: Sequence[bytes]) -> "PromptChain":
        """What `dump` gave, from a process of this server."""
        chain = cls.__new__(cls)
        chain.root, data, digests = dumped
        chain._data = memoryview(data)
        chain.tokens = len(data) // UNIT
        chain._digests = [digests[at : at + _DIGEST] for at in range(0, len(digests), _DIGEST)]
        chain.keys = _even_keys(chain._digests)
        chain._blocks = {}
        return chain

    def blocks(self, chunk: int) -> list[Key]:
        """Keys of the whole blocks inside a chunk; of the one behind the last key: of what fills no chunk."""
        found = self._blocks.get(chunk)
        if found is None:
            found = self._blocks[chunk] = self._hash_blocks(chunk)
        return found

    def _hash_blocks(self, chunk: int) -> list[Key]:
        parent = self._digests[chunk - 1] if chunk else self.root
        # One hash that goes on, and is looked at behind each block: a new one for each takes half as long again.
        read, start = sha256(b"blocks" + parent), chunk * _CHUNK_BYTES
        data, digests = bytes(self._data[start : start + _CHUNK_BYTES]), []
        for at in range(0, len(data) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
            read.update(data[at : at + _BLOCK_BYTES])
            digests.append(read.digest())
        return [key | 1 for (key,) in _FIRST.iter_unpack(b"".join(digests))]


def _even_keys(digests: list[bytes]) -> list[Key]:
    if not digests:
        return []
    words = np.frombuffer(b"".join(digests), dtype="<u8")[::4]
    keys: list[Key] = (words & ~np.uint64(1)).tolist()
    return keys
