"""Which earlier request a request should have shared its prefix with."""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from canon.lint.segments import Segment

_FEATURES = 64  # lines of one text that are looked at
_LEAST = 12  # characters of a line that tells something
_EACH = 4  # requests remembered for one feature
_LOOKED_AT = 256  # features of the newest pieces and of the oldest that are looked up


class History:
    """The newest requests of a log, within `max_bytes` of prompt text. Equal texts are kept once."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._max = max_bytes
        self._size = 0
        self._requests: OrderedDict[int, tuple[list[Segment], list[int]]] = OrderedDict()
        self._whole: dict[int, int] = {}  # hash of all pieces of a request -> its number
        self._by_feature: dict[int, list[int]] = {}
        self._texts: dict[str, tuple[str, int]] = {}  # text -> itself and how many pieces use it
        self._next = 0

    def like(self, segments: Sequence[Segment]) -> list[Segment] | None:
        """The earlier request that this one goes on from, or else the one that has most text in common with it, of two
        alike the newer; None: nothing."""
        goes_on_from = [
            number for chain in _chains(segments) if (number := self._whole.get(chain)) is not None
        ]
        if goes_on_from:
            return self._requests[goes_on_from[-1]][0]
        votes: Counter[int] = Counter()
        for feature, weight in _features(segments):
            for number in self._by_feature.get(feature, ()):
                votes[number] += weight
        if not votes:
            return None
        best = max(votes.items(), key=lambda vote: (vote[1], vote[0]))[0]
        return self._requests[best][0]

    def add(self, segments: Sequence[Segment]) -> None:
        """Remember a request, and forget the oldest ones past the bound."""
        number, self._next = self._next, self._next + 1
        features = [feature for feature, _ in _features(segments)]
        self._requests[number] = ([self._shared(piece) for piece in segments], features)
        for chain in _chains(segments)[-1:]:
            self._whole[chain] = number
        for feature in features:
            holders = self._by_feature.setdefault(feature, [])
            holders.append(number)
            del holders[:-_EACH]
        while self._size > self._max and len(self._requests) > 1:
            self._forget()

    def _shared(self, piece: Segment) -> Segment:
        text, uses = self._texts.get(piece.text, (piece.text, 0))
        if not uses:
            self._size += len(text)
        self._texts[text] = (text, uses + 1)
        self._size += 200  # the piece itself
        return replace(piece, text=text)

    def _forget(self) -> None:
        number, (segments, features) = self._requests.popitem(last=False)
        for chain in _chains(segments)[-1:]:
            if self._whole.get(chain) == number:
                del self._whole[chain]
        for piece in segments:
            text, uses = self._texts.pop(piece.text)
            self._size -= 200
            if uses > 1:
                self._texts[text] = (text, uses - 1)
            else:
                self._size -= len(text)
        for feature in features:
            holders = self._by_feature.get(feature)
            if holders and number in holders:
                holders.remove(number)
                if not holders:
                    del self._by_feature[feature]


def _chains(segments: Sequence[Segment]) -> list[int]:
    """A hash for each piece of the conversation: of all pieces up to it."""
    chain, chains = 0, []
    for piece in segments:
        if piece.role != "switch":
            chain = hash((chain, piece.key))
            if piece.turn >= 0 and piece.role not in ("system", "developer"):
                chains.append(chain)
    return chains


def _features(segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    """Hashes of pieces, and of the lines of those in front of the conversation, with their length as weight."""
    seen: set[int] = set()
    for position, piece in enumerate(segments):
        near = position < _LOOKED_AT or position >= len(segments) - _LOOKED_AT
        if not near or len(piece.text) < 2:
            continue
        for feature, weight in _of_piece(piece):
            if feature not in seen:
                seen.add(feature)
                yield feature, weight


def _of_piece(piece: Segment) -> Iterator[tuple[int, int]]:
    yield hash(piece.key), len(piece.text)
    if piece.turn > 0 and piece.role not in ("system", "developer"):
        return
    lines = piece.text.split("\n", _FEATURES)[:_FEATURES]
    for line in lines:
        if len(line) >= _LEAST and len(lines) > 1:
            yield hash((piece.role, line)), len(line) // 2
