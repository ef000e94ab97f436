"""Where and why a prompt leaves the most alike earlier one. Places, names and hashes come out; no text does."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from canon.lint.alignment import common_start, compare
from canon.lint.causes import Evidence, cause_of
from canon.lint.segments import Segment
from canon.lint.switches import switch_cause
from canon.requests.paths import path_text
from gateway.ledger.row import Divergence

# What is looked at behind the place, so that the longest prompts cost no more than others.
_PIECES = 12
_TEXT = 3_000  # characters of one piece
_BEFORE = 500  # characters of a text in front of the difference


def first_divergence(body: Any, old: Sequence[Segment], new: Sequence[Segment]) -> Divergence | None:
    """The first difference that costs anything; None: there is none, or `new` is another conversation."""
    shared = next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a.key != b.key),
        min(len(old), len(new)),
    )
    if shared == len(new):
        return None
    skipped = 0
    if shared < len(old):
        skipped = max(0, common_start(old[shared].text, new[shared].text) - _BEFORE)
    # JSON is compared by key, which needs the whole of it.
    skipped = 0 if new[shared].kind == "tool" else skipped
    sides = [_cut(side[shared : shared + _PIECES], skipped) for side in (old, new)]
    found = compare(*sides)
    if not found:
        return None
    one = found[0]
    at_place = one.segment.path == new[shared].path
    offset = one.offset + (skipped if at_place else 0)
    cause = cause_of(Evidence(one, *sides))
    place = next((at for at, piece in enumerate(new) if piece.path == one.segment.path), shared)
    return Divergence(path_text(body, one.segment.path), offset, cause.name, _hash(new, place, offset))


def switch_divergence(switch: Segment, new: Sequence[Segment]) -> Divergence:
    """A difference that is in no text: another salt, another switch of the template."""
    return Divergence(".".join(map(str, switch.path)), 0, switch_cause(switch).name, _hash(new, 0, 0))


def _cut(side: Sequence[Segment], skipped: int) -> list[Segment]:
    cut = []
    for at, piece in enumerate(side):
        start = skipped if at == 0 else 0
        short = (start == 0 and len(piece.text) <= _TEXT) or piece.kind == "tool"
        cut.append(piece if short else replace(piece, text=piece.text[start : start + _TEXT]))
    return cut


def _hash(new: Sequence[Segment], shared: int, offset: int) -> str:
    """Of all that stands in front of the difference."""
    digest = blake2b(digest_size=16)
    for piece in new[:shared]:
        digest.update(f"{piece.role}\0{piece.kind}\0{piece.text}\0".encode("utf-8", "surrogatepass"))
    if shared < len(new):
        digest.update(new[shared].text[:offset].encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
