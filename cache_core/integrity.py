"""Proof that every block is in exactly one place and that every count is what it says."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from cache_core.block_pool import BlockPool
from cache_core.errors import IntegrityError
from cache_core.lease import Lease
from cache_core.node import Node
from cache_core.prefix_index import PrefixIndex, nodes_below
from cache_core.residency import unpack
from cache_core.tokens import TOKEN_BYTES


def check(pool: BlockPool, index: PrefixIndex, leases: Sequence[Lease]) -> None:
    """Recount everything from the trees, the leases and the free runs.

    Raises:
        IntegrityError: says what is wrong.
    """
    nodes = [node for root in index.roots() for node in nodes_below(root)]
    _check_trees(index, pool.block_size)
    _check_pins(index, leases)
    _check_places(pool, nodes, leases)
    _check_counts(pool, index, nodes, leases)
    for lease in leases:
        _check_lease(lease, pool.block_size)


def _check_trees(index: PrefixIndex, block_size: int) -> None:
    step = block_size * TOKEN_BYTES
    for root in index.roots():
        if root.parent is not None or root.label or root.blocks:
            raise IntegrityError(f"the root of {root.scope!r} has a parent or a label")
        held = sum(node.num_blocks for node in nodes_below(root))
        _require(root.held == held, f"the root of {root.scope!r} counts {root.held} blocks of {held}")
        for node in (root, *nodes_below(root)):
            _require(node is root or len(node.label) > 0, "a node has an empty label")
            known = len(unpack(node.resident).bits)
            _require(known <= node.num_blocks, "a node knows where blocks are that it does not have")
            _require(len(node.label) * 4 == len(node.blocks) * step, "a label is not as long as its blocks")
            for key, child in (node.children or {}).items():
                _require(child.parent is node, "a child does not know its parent")
                _require(child.label[:step] == key, "a child stands under another key than its first block")
                heat_fits = child.leases > 0 or child.last_access <= node.last_access or node is root
                _require(heat_fits, "a cached node was used after its parent")


def _check_pins(index: PrefixIndex, leases: Sequence[Lease]) -> None:
    pins: Counter[Node] = Counter()
    for lease in leases:
        step: Node | None = lease.node
        top = lease.node
        while step is not None:
            pins[step] += 1
            top, step = step, step.parent
        _require(top is lease.root, "a lease's node is not in its tree")
    roots = index.roots()
    for root in roots:
        for node in (root, *nodes_below(root)):
            _require(
                node.leases == pins.pop(node, 0),
                "a node's lease count is not the number of leases through it",
            )
    _require(not pins, "a lease pins a node that is in no tree")


def _check_places(pool: BlockPool, nodes: Iterable[Node], leases: Sequence[Lease]) -> None:
    places = np.zeros(pool.num_blocks, dtype=np.int32)
    expected = np.zeros(pool.num_blocks, dtype=np.int32)  # of pool.holders
    for first, length in pool.free_runs():
        places[first : first + length] += 1
    for node in nodes:
        np.add.at(places, node.block_ids(), 1)
        expected[node.block_ids()] = 1
    for lease in leases:
        np.add.at(places, lease.own_blocks(), 1)
        expected[lease.own_blocks()] = -1
    _require_all(places == 1, "blocks that are not in exactly one of free list, index node, request")
    _require_all(np.sign(pool.holders) == expected, "blocks whose state is not that of their place")
    _require_all(np.abs(pool.holders) <= 1, "blocks whose refcount is not their number of holders")


def _check_counts(
    pool: BlockPool, index: PrefixIndex, nodes: Sequence[Node], leases: Sequence[Lease]
) -> None:
    cached = sum(node.num_blocks for node in nodes if node.leases == 0)
    leased = sum(node.num_blocks for node in nodes if node.leases)
    filling = sum(lease.num_blocks - lease.indexed for lease in leases)
    _require(index.unleased == cached, f"{index.unleased} blocks are counted as cached, {cached} are")
    _require(
        index.blocks == cached + leased,
        f"{index.blocks} blocks are counted as indexed, {cached + leased} are",
    )
    free, total = pool.free_count, pool.num_blocks
    adds_up = free + filling + cached + leased == total
    _require(adds_up, f"free {free} + filling {filling} + cached {cached} + leased {leased} is not {total}")


def _check_lease(lease: Lease, block_size: int) -> None:
    path: list[Node] = []
    step: Node | None = lease.node
    while step is not None:
        path.append(step)
        step = step.parent
    path.reverse()
    label = b"".join(node.label for node in path)
    blocks = b"".join(node.blocks for node in path)
    _require(lease.blocks[: lease.indexed].tobytes() == blocks, "a page table differs from the nodes it pins")
    covered = lease.tokens[: lease.indexed * block_size].tobytes()
    _require(covered == label, "a lease's tokens differ from the labels it pins")
    _require(lease.num_blocks == -(-lease.length // block_size), "a page table is not as long as its tokens")
    _require(lease.indexed == lease.ready // block_size, "ready whole blocks of a lease are not in the index")
    _require(lease.ready <= lease.length, "a lease has more ready tokens than it covers")


def _require(holds: bool, broken: str) -> None:
    if not holds:
        raise IntegrityError(broken)


def _require_all(holds: "np.ndarray[tuple[int], np.dtype[np.bool_]]", broken: str) -> None:
    if not holds.all():
        raise IntegrityError(f"{broken}: {np.flatnonzero(~holds)[:8].tolist()}")
