"""Images, sounds and the like among token ids: their placeholders are the same for all, so their content must count."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cache_core.tokens import Tokens, as_tokens

_MARKS = 4  # ids that stand for one medium: 31 bits of its digest each, so that nobody finds two alike


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """One medium in a prompt."""

    offset: int  # tokens from the prompt's start to its first placeholder
    length: int  # placeholder tokens
    hash: bytes  # of its content, and of how it is processed


def with_media(tokens: Tokens, media: Sequence[MediaSpan], block_size: int) -> Tokens:
    """A copy of `tokens` (int32 [n]) to cache a prompt under: what its media are is in the ids.

    In the block where a medium begins, 4 ids become negative ones, which no vocabulary has, made of its hash and of
    the ids that they replace: its first placeholders, or where the block ends before the fourth, ids of text before it
    in that block, which is not shared in any case. So every block from a medium's offset on has all of its hash in its
    chain hash, prefixes part there in the index and in the headers of every tier, and blocks before it are still
    shared. The model itself gets the ids as they were.

    Raises:
        ValueError: a block has fewer than 4 tokens; or a span lies outside the prompt, overlaps another, or has fewer
            than 4 placeholders, which cannot hold enough of a hash; put that medium's hash into the scope instead.
    """
    if block_size < _MARKS:
        raise ValueError(f"a block of {block_size} tokens has no room for a medium's {_MARKS} marks")
    marked, end = as_tokens(tokens).copy(), 0
    for span in sorted(media, key=lambda span: span.offset):
        if span.offset < end or span.offset + span.length > len(marked):
            raise ValueError(f"the medium at token {span.offset} lies outside the prompt or in another one")
        if span.length < _MARKS:
            raise ValueError(f"the medium at token {span.offset} has fewer than {_MARKS} placeholders")
        block_end = (span.offset // block_size + 1) * block_size
        first = min(span.offset, block_end - _MARKS)
        place = slice(first, first + _MARKS)
        marked[place] = _marks(span, marked[place], span.offset - first)
        end = span.offset + span.length
    return marked


def _marks(span: MediaSpan, replaced: Tokens, text: int) -> Tokens:
    """Negative ids [4]; of those they replace, the first `text` are no placeholders of this medium."""
    message = b"kvgate medium 2" + text.to_bytes(1, "little") + replaced.astype("<i4").tobytes()
    message += span.length.to_bytes(4, "little") + span.hash
    words = np.frombuffer(hashlib.sha256(message).digest()[: 4 * _MARKS], dtype="<u4")
    return (words | np.uint32(1 << 31)).astype(np.uint32).view(np.int32)
