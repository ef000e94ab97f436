"""What a prefix cache without bounds would reuse of a log: a set of block-chain hashes."""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b

from canon.lint.segments import Segment

UNIT = 4  # bytes of one token: of an int32 id, and, where tokens are estimated, of UTF-8 text
_STATES = 100_000  # remembered ends of pieces
_BLOCKS = 2_000_000

Encode = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Replayed:
    """One request against all before it, in tokens."""

    prompt: int
    reused: int


@dataclass(slots=True)
class _End:
    """Where a chain of pieces ends: the hash of its last whole block and what is left behind it."""

    chain: bytes
    tail: bytes
    blocks: int


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
        end, reused, matching = _End(seed, b"", 0), 0, True
        for data in pieces:
            end, found = self._extend(end, data, matching)
            matching = matching and found == end.blocks
            reused = max(reused, found)
        prompt = end.blocks * self._block_size + len(end.tail) // UNIT
        whole = max(prompt - 1, 0) // self._block_size  # the last token is computed in any case
        return Replayed(prompt, min(reused, whole) * self._block_size)

    def _extend(self, start: _End, data: bytes, matching: bool) -> tuple[_End, int]:
        """The end behind `data`, and how many leading blocks up to there were known, 0 where matching had ended."""
        name = blake2b(
            len(start.tail).to_bytes(8, "big") + start.tail + data, digest_size=16, key=start.chain
        )
        key = name.digest()
        known = self._ends.get(key)
        if known is not None:
            return known, known.blocks if matching else 0
        end, found = self._hash(start, data, matching)
        if len(self._ends) >= _STATES:
            self._ends.clear()
        self._ends[key] = end
        return end, found

    def _hash(self, start: _End, data: bytes, matching: bool) -> tuple[_End, int]:
        stream, chain, width = start.tail + data, start.chain, self._width
        found = start.blocks if matching else 0
        whole = len(stream) // width
        for index in range(whole):
            block = stream[index * width : (index + 1) * width]
            chain = blake2b(block, digest_size=12, key=chain).digest()
            known = chain in self._new or chain in self._old
            matching = matching and known
            found += matching
            if chain not in self._new:
                self._add(chain)  # what is used goes on to be remembered
        return _End(chain, stream[whole * width :], start.blocks + whole), found

    def _add(self, chain: bytes) -> None:
        self._new.add(chain)
        if len(self._new) >= self._max_blocks:
            self.full = self.full or bool(self._old)
            self._new, self._old = set(), self._new
            self._ends.clear()


def _printed(segment: Segment) -> str:
    """As a template might: an object otherwise than the string that says the same."""
    return f"<|{segment.role}|>{' ' if segment.wire == 'object' else ''}{segment.text}"
