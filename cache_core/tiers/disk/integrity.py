"""Proof that every block on disk is in one place, and that the segments are what is said of them."""

from cache_core.errors import IntegrityError
from cache_core.tiers.disk.catalog import Catalog
from cache_core.tiers.disk.segment import Segment


def check(catalog: Catalog) -> None:
    """Compare index, segments and files. For quiet moments, and disks that work.

    Raises:
        IntegrityError: says what is wrong.
    """
    live = catalog.index.live_bytes()
    _require(live.keys() <= catalog.segments.keys(), "the index knows blocks in a segment that is not there")
    for number, segment in catalog.segments.items():
        found = _check_segment(catalog, segment)
        _require(
            live.get(number, (0, 0))[1] == found, f"{segment.path.name} has blocks that are counted twice"
        )
    known = sum(count for _, count in live.values())
    _require(catalog.index.count() == known, "the index counts blocks that are in no segment")


def _check_segment(catalog: Catalog, segment: Segment) -> int:
    """How many blocks it holds that can be found."""
    name, end, count = segment.path.name, 0, 0
    _require(segment.path.stat().st_size >= segment.size, f"{name} is shorter than its records")
    for _, place, identity in catalog.index.in_segment(segment.number):
        _require(place.offset >= end, f"two blocks lie in one place of {name}")
        end, count = place.offset + place.length, count + 1
        _require(segment.owner in (None, identity), f"{name} has a block of another scope than its own")
    _require(end <= segment.size, f"a block lies behind the end of {name}")
    return count


def _require(holds: bool, broken: str) -> None:
    if not holds:
        raise IntegrityError(broken)
