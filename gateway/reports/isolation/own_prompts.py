"""What a tenant has sent itself: as much as a new prompt begins like that, it may reuse without any leak."""

from bisect import bisect_left, insort

_LOOKED_AT = 1024  # bytes of each prompt: by chance no two have more in common


class OwnPrompts:
    """The beginnings of the texts of one tenant, in order, so that the nearest are neighbours."""

    def __init__(self) -> None:
        self._beginnings: list[bytes] = []

    def shared(self, text: str) -> int:
        """Bytes that `text` begins with in common with another text that was sent, itself left out."""
        beginning = text.encode()[:_LOOKED_AT]
        place = bisect_left(self._beginnings, beginning)
        behind = place + (self._beginnings[place : place + 1] == [beginning])
        near = self._beginnings[max(place - 1, 0) : place] + self._beginnings[behind : behind + 1]
        return max((_common(beginning, other) for other in near), default=0)

    def add(self, text: str) -> None:
        """It was sent."""
        beginning = text.encode()[:_LOOKED_AT]
        place = bisect_left(self._beginnings, beginning)
        if self._beginnings[place : place + 1] != [beginning]:
            insort(self._beginnings, beginning)


def _common(one: bytes, other: bytes) -> int:
    for place, (here, there) in enumerate(zip(one, other, strict=False)):
        if here != there:
            return place
    return min(len(one), len(other))
