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


def with_media(tokens: Tokens, media: Sequence[MediaSpan]) -> Tokens:
    """A copy of `tokens` (int32 [n]) to cache a prompt under: what its media are is in the ids.

    The first placeholders of each medium become negative ids, which no vocabulary has, made of its hash. So prefixes
    part where a medium begins, in the index as in the chain hashes and headers of every tier, and text before it is
    still shared. The model itself gets the ids as they were.

    Raises:
        ValueError: a span lies outside the prompt, overlaps another, or has fewer than 4 placeholders, which cannot
            hold enough of a hash; put that medium's hash into the scope instead.
    """
    marked, end = as_tokens(tokens).copy(), 0
    for span in sorted(media, key=lambda span: span.offset):
        if span.offset < end or span.offset + span.length > len(marked):
            raise ValueError(f"the medium at token {span.offset} lies outside the prompt or in another one")
        if span.length < _MARKS:
            raise ValueError(f"the medium at token {span.offset} has fewer than {_MARKS} placeholders")
        marked[span.offset : span.offset + _MARKS] = _marks(span)
        end = span.offset + span.length
    return marked


def _marks(span: MediaSpan) -> Tokens:
    """Negative ids [4]."""
    message = b"kvgate medium 1" + span.length.to_bytes(4, "little") + span.hash
    words = np.frombuffer(hashlib.sha256(message).digest()[: 4 * _MARKS], dtype="<u4")
    return (words | np.uint32(1 << 31)).astype(np.uint32).view(np.int32)
