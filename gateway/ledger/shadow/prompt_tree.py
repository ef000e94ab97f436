"""Prompts that were sent, as a tree of pieces: shared beginnings are kept once, the nearest earlier one is found."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from canon.lint.alignment import byte_length, common_end, common_start
from canon.lint.history import History
from canon.lint.segments import Segment

_CHILDREN = 8  # newest ways on from one piece that are remembered
_AHEAD = 256  # pieces behind a difference that are looked up
_WORTH = 16  # characters of a piece that tells something
_ALIKE = 0.3  # of a text that must be the same for two to be versions of one
_NODE = 400  # bytes of one node beside its text
_HEADS = 8 << 20  # bytes of prompt heads


@dataclass(slots=True)
class _Node:
    segment: Segment
    parent: int  # its key; of the first pieces: the scope's hash
    index: int  # of its text in `_by_piece`
    size: int
    request: int  # the last one that came through here
    ends: bool = False  # a prompt ended here
    children: list[int] = field(default_factory=list)  # newest last


class Nearest(msgspec.Struct, frozen=True):
    """What was found of one prompt before it was added."""

    shared: int  # pieces of it that an earlier prompt began with
    goes_on: bool  # an earlier prompt is a beginning of this one: nothing of it was lost
    request: int | None  # the last one that came through the shared pieces
    old: Sequence[Segment]  # the most alike earlier prompt, where this one leaves it; empty: there is none


class PromptTree:
    """Within `max_bytes`; the prompts that were not used for longest go first. One thread at a time."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._size = 0
        self._nodes: OrderedDict[int, _Node] = OrderedDict()
        self._roots: dict[int, list[int]] = {}
        self._by_piece: dict[int, int] = {}
        self._heads = History(_HEADS)

    def add(self, scope: str, segments: Sequence[Segment], request: int) -> Nearest:
        """What is nearest to a prompt; then it is remembered under its number."""
        root = hash(scope)
        keys = _path_keys(root, segments)
        shared, through = self._shared(keys)
        # A prompt that was sent before, or goes on from one that was, has lost nothing.
        goes_on = through is not None and (shared == len(keys) or through.ends)
        old: Sequence[Segment] = ()
        if not goes_on and segments:
            old = self._most_alike(scope, segments, keys, shared)
        found = Nearest(shared, goes_on, through.request if through else None, old)
        self._remember(scope, segments, keys, shared, request)
        return found

    def _shared(self, keys: Sequence[int]) -> tuple[int, _Node | None]:
        """How many pieces an earlier prompt began with, and the last of them."""
        nodes, through = self._nodes, None
        for at, key in enumerate(keys):
            node = nodes.get(key)
            if node is None:
                return at, through
            through = node
        return len(keys), through

    def _most_alike(
        self, scope: str, segments: Sequence[Segment], keys: Sequence[int], shared: int
    ) -> Sequence[Segment]:
        later = self._with_later_piece(scope, segments, shared)
        if later is not None:
            return self._whole(later)
        place = segments[shared]
        if _in_head(place):
            head = self._heads.like(_scoped_head(scope, segments))
            if head:
                return [replace(piece, role=piece.role.rpartition("\0")[2]) for piece in head]
        ways_on = self._ways_on(keys[shared - 1] if shared else hash(scope))
        nodes = self._nodes
        alike = {key: _alike(nodes[key].segment, place) for key in ways_on if key in nodes}
        best = max(alike, key=alike.__getitem__, default=None)
        if best is None or alike[best] < _ALIKE * len(place.text):
            return ()
        return self._whole(best)

    def _with_later_piece(self, scope: str, segments: Sequence[Segment], shared: int) -> int | None:
        """A node with a piece that this prompt has behind the difference: the longest one counts."""
        best, longest = None, _WORTH
        for piece in segments[shared + 1 : shared + 1 + _AHEAD]:
            if len(piece.text) > longest:
                key = self._by_piece.get(hash((scope, piece.key)))
                if key is not None and key in self._nodes:
                    best, longest = key, len(piece.text)
        return best

    def _whole(self, key: int) -> Sequence[Segment]:
        """The newest prompt through a node, as far as it is still remembered; empty if its beginning is not."""
        up: list[Segment] = []
        at = key
        while at in self._nodes:
            up.append(self._nodes[at].segment)
            at = self._nodes[at].parent
        if at not in self._roots:
            return ()
        down: list[Segment] = []
        node = self._nodes[key]
        while node.children and node.children[-1] in self._nodes:
            node = self._nodes[node.children[-1]]
            down.append(node.segment)
        return [*reversed(up), *down]

    def _remember(
        self, scope: str, segments: Sequence[Segment], keys: Sequence[int], shared: int, request: int
    ) -> None:
        if shared < len(segments) and _in_head(segments[shared]):
            self._heads.add(_scoped_head(scope, segments))
        parent, nodes, node = hash(scope), self._nodes, None
        ways_on = self._ways_on(parent)
        for at, key in enumerate(keys):
            if at >= shared:
                self._put(scope, segments[at], key, parent)
            if not ways_on or ways_on[-1] != key:
                _newest(ways_on, key)
            node = nodes[key]
            node.request, ways_on, parent = request, node.children, key
        if node is not None:
            node.ends = True
        # The end goes before the beginning: a node without the one above it could not be found.
        for key in reversed(keys):
            nodes.move_to_end(key)
        while self._size > self._max and self._nodes:
            self._forget()

    def _put(self, scope: str, piece: Segment, key: int, parent: int) -> None:
        if key in self._nodes:  # the same piece twice in a row can make no key twice, but a hash may
            return
        index, size = hash((scope, piece.key)), _NODE + byte_length(piece.text)
        self._nodes[key] = _Node(piece, parent, index, size, 0)
        self._size += size
        if len(piece.text) > _WORTH:
            self._by_piece[index] = key

    def _ways_on(self, parent: int) -> list[int]:
        node = self._nodes.get(parent)
        return self._roots.setdefault(parent, []) if node is None else node.children

    def _forget(self) -> None:
        key, node = self._nodes.popitem(last=False)
        self._size -= node.size
        if self._by_piece.get(node.index) == key:
            del self._by_piece[node.index]
        parent = self._nodes.get(node.parent)
        siblings = self._roots.get(node.parent, []) if parent is None else parent.children
        if key in siblings:
            siblings.remove(key)
        if parent is None and not siblings:
            self._roots.pop(node.parent, None)


def _newest(children: list[int], key: int) -> None:
    if key in children:
        children.remove(key)
    children.append(key)
    del children[:-_CHILDREN]


def _path_keys(root: int, segments: Sequence[Segment]) -> list[int]:
    """One number a piece, which stands for it and all before it."""
    keys, at = [], root
    for piece in segments:
        at = hash((at, piece.role, piece.kind, piece.text))
        keys.append(at)
    return keys


def _alike(a: Segment, b: Segment) -> int:
    """Characters that both begin with or end with; 0 for pieces of different kinds."""
    if (a.role, a.kind) != (b.role, b.kind):
        return 0
    start = common_start(a.text, b.text)
    return start + common_end(a.text[start:], b.text[start:])


def _in_head(piece: Segment) -> bool:
    return piece.role in ("system", "developer", "tools") or piece.turn < 0


def _scoped_head(scope: str, segments: Sequence[Segment]) -> list[Segment]:
    """Pieces up to the first turn of a conversation, in roles that no other scope has."""
    end = next((at for at, piece in enumerate(segments) if not _in_head(piece)), len(segments))
    return [replace(piece, role=f"{scope}\0{piece.role}") for piece in segments[:end]]
