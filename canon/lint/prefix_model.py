"""What a prefix cache without bounds would reuse of a log: a set of block-chain hashes."""

from collections.abc import Callable, Iterable
from copy import copy
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from canon.lint.segments import Segment

UNIT = 4  # bytes of one token: of an int32 id, and, where tokens are estimated, of UTF-8 text
_STATES = 100_000  # remembered ends of pieces
_BLOCKS = 2_000_000

Encode = Callable[[str], bytes]


class Replayed(msgspec.Struct, frozen=True):
    """One request against all before it, in tokens."""

    prompt: int
    reused: int


# Where a chain of pieces ends: the hash of its last whole block, what is left behind it, and the blocks so far.
_End: TypeAlias = tuple[bytes, bytes, int]


class PrefixModel:
    """Replays prompts. Bounded: of more than some millions of blocks the oldest are forgotten, and `full` says so.

    Args:
        encode: text to bytes, `UNIT` a token; UTF-8 text itself, or int32 ids.
        block_size: tokens a block.
        max_blocks: block hashes in one generation, of which there are two.
    """

    def __init__(self, encode: Encode, block_size: int = 16, max_blocks: int = _BLOCKS) -> None:
        self._encode = encode
        self._width = block_size * UNIT
        self._block_size = block_size
        self._max_blocks = max_blocks
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()
        self._ends: dict[bytes, _End] = {}
        self.full = False

    def fork(self) -> "PrefixModel":
        """A model that has seen the same and goes on by itself."""
        twin = copy(self)
        twin._new, twin._old, twin._ends = set(self._new), set(self._old), dict(self._ends)
        return twin

    def replay(self, segments: Iterable[Segment], seed: bytes = b"") -> Replayed:
        """How much of a prompt was there before; then it is there. As `replay_encoded`."""
        return self.replay_encoded((self._encode(_printed(segment)) for segment in segments), seed)

    def replay_encoded(self, pieces: Iterable[bytes], seed: bytes = b"") -> Replayed:
        """The same of a prompt that is bytes already, `UNIT` a token; pieces that come again cost least.

        Prompts share nothing with those of another `seed`, of 64 bytes at most.
        """
        chain, tail, blocks, reused, matching = seed, b"", 0, 0, True
        for data in pieces:
            stream = tail + data if tail else data
            # The end behind it hangs on nothing else: not on how the stream was cut into pieces.
            name = blake2b(stream, digest_size=16, key=chain).digest()
            end = self._ends.get(name)
            if end is not None:
                chain, tail, blocks = end
                reused = blocks if matching else reused
                continue
            end, found = self._hash(chain, stream, blocks, matching)
            self._remember(name, end)
            chain, tail, blocks = end
            if matching:
                reused, matching = found, found == blocks
        prompt = blocks * self._block_size + len(tail) // UNIT
        whole = max(prompt - 1, 0) // self._block_size  # the last token is computed in any case
        return Replayed(prompt, min(reused, whole) * self._block_size)

    def _remember(self, name: bytes, end: _End) -> None:
        if len(self._ends) >= _STATES:
            self._ends.clear()
        self._ends[name] = end

    def _hash(self, chain: bytes, stream: bytes, blocks: int, matching: bool) -> tuple[_End, int]:
        """The end behind `stream`, and how many leading blocks up to there were known while all before were."""
        width, found = self._width, blocks
        whole = len(stream) // width
        for start in range(0, whole * width, width):
            chain = blake2b(stream[start : start + width], digest_size=12, key=chain).digest()
            if chain not in self._new:
                matching = matching and chain in self._old
                self._add(chain)  # what is used goes on to be remembered
            found += matching
        return (chain, stream[whole * width :], blocks + whole), found

    def _add(self, chain: bytes) -> None:
        self._new.add(chain)
        if len(self._new) >= self._max_blocks:
            self.full = self.full or bool(self._old)
            self._new, self._old = set(), self._new
            self._ends.clear()


def _printed(segment: Segment) -> str:
    """As a template might: an object otherwise than the string that says the same."""
    return f"<|{segment.role}|>{' ' if segment.wire == 'object' else ''}{segment.text}"
