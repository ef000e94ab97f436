import numpy as np
import pytest
from numpy.typing import NDArray

from cache_core import IntegrityError, prefix_index
from cache_core.node import Node
from cache_core.prefix_index import PrefixIndex, nodes_below


def ids(*values: int) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def span(start: int, stop: int) -> NDArray[np.int32]:
    return np.arange(start, stop, dtype=np.int32)


def insert(index: PrefixIndex, tokens: NDArray[np.int32], blocks: NDArray[np.int32], now: int = 1) -> Node:
    """What a request does that is the only one: pin, append the rest, unpin."""
    node, matched = index.descend(index.root("s"), tokens)
    index.pin(node)
    if matched < len(tokens):
        node = index.append(node, tokens[matched:], blocks)
    index.unpin(node, now)
    return node


def edges(index: PrefixIndex) -> list[list[int]]:
    return sorted(node.tokens().tolist() for node in nodes_below(index.root("s")))


def test_a_prompt_matches_what_was_indexed_in_whole_blocks() -> None:
    index = PrefixIndex(4)
    insert(index, span(0, 12), ids(7, 8, 9))
    assert index.match("s", span(0, 12)) == 12
    assert index.match("s", span(0, 11)) == 8
    assert index.match("s", span(0, 99)) == 12
    assert index.match("s", span(0, 3)) == 0
    assert index.match("s", ids(0, 1, 2, 99)) == 0
    assert index.match("s", ids()) == 0


def test_scopes_share_nothing() -> None:
    index = PrefixIndex(4)
    insert(index, span(0, 8), ids(0, 1))
    assert index.match("t", span(0, 8)) == 0


def test_matching_changes_nothing() -> None:
    index = PrefixIndex(2)
    node = insert(index, span(0, 8), ids(0, 1, 2, 3), now=5)
    assert index.match("s", span(0, 4)) == 4
    assert index.match("nobody", span(0, 4)) == 0
    assert edges(index) == [list(range(8))]
    assert node.last_access == 5
    assert [root.scope for root in index.roots()] == ["s"]


def test_an_edge_splits_at_the_block_where_two_prompts_part() -> None:
    index = PrefixIndex(2)
    insert(index, span(0, 8), ids(10, 11, 12, 13))
    node = insert(index, ids(0, 1, 2, 3, 4, 99), ids(20))
    assert edges(index) == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 99]]
    assert index.path_blocks(node).tolist() == [10, 11, 20]
    assert index.match("s", span(0, 8)) == 8


def test_a_split_inherits_leases_and_heat_and_leaves_a_lease_at_its_end() -> None:
    index = PrefixIndex(1)
    node = insert(index, span(0, 6), span(0, 6), now=3)
    index.pin(node)
    upper, matched = index.descend(index.root("s"), ids(0, 1, 99))
    assert matched == 2
    assert (upper.leases, upper.last_access) == (1, 3)
    assert index.path_blocks(node).tolist() == [0, 1, 2, 3, 4, 5]
    index.unpin(node, 5)
    assert (upper.leases, node.leases) == (0, 0)
    assert index.unleased == index.blocks == 6


def test_only_the_request_that_pins_a_leaf_alone_grows_it_in_place() -> None:
    index = PrefixIndex(1)
    node = index.append(index.root("s"), span(0, 2), ids(0, 1))
    index.root("s").leases = 1
    assert index.append(node, ids(2), ids(2)) is node
    index.pin(node)
    assert index.append(node, ids(3), ids(3)) is not node


def test_an_only_child_joins_its_parent_when_leases_and_heat_are_equal() -> None:
    index = PrefixIndex(1)
    first = insert(index, span(0, 4), span(0, 4), now=1)
    insert(index, ids(0, 1, 9), ids(9), now=2)
    assert len(edges(index)) == 3
    index.pin(first)
    index.unpin(first, 3)
    second, _ = index.descend(index.root("s"), ids(0, 1, 9))
    index.trim(second, 1)
    index.merge_path(first)
    assert edges(index) == [[0, 1, 2, 3]]
    assert index.path_blocks(first).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("apart", ["heat", "leases"])
def test_an_only_child_that_differs_stays_apart(apart: str) -> None:
    index = PrefixIndex(1)
    node = insert(index, span(0, 4), span(0, 4), now=1)
    upper, _ = index.descend(index.root("s"), span(0, 2))
    if apart == "heat":
        upper.last_access = 2
    else:
        index.pin(upper)
    index.merge_path(node)
    assert len(edges(index)) == 2


def test_a_leaf_is_trimmed_from_its_end() -> None:
    index = PrefixIndex(2)
    node = insert(index, span(0, 8), ids(5, 6, 7, 8))
    assert index.trim(node, 1).tolist() == [8]
    assert index.match("s", span(0, 8)) == 6
    assert index.trim(node, 9).tolist() == [5, 6, 7]
    assert index.match("s", span(0, 8)) == 0
    assert index.blocks == index.unleased == 0


def test_a_leased_or_inner_node_is_never_trimmed() -> None:
    index = PrefixIndex(1)
    node = insert(index, span(0, 4), span(0, 4))
    upper, _ = index.descend(index.root("s"), span(0, 2))
    with pytest.raises(IntegrityError, match="unleased leaf"):
        index.trim(upper, 1)
    index.pin(node)
    with pytest.raises(IntegrityError, match="unleased leaf"):
        index.trim(node, 1)


@pytest.mark.parametrize("block", [1, 16])
def test_long_prompts_become_chains_of_bounded_nodes(block: int) -> None:
    index, n = PrefixIndex(block), 100_000 // block * block
    node = insert(index, span(0, n), span(0, n // block))
    assert max(len(node.label) for node in nodes_below(index.root("s"))) <= prefix_index._MAX_LABEL
    assert index.match("s", span(0, n)) == n
    assert index.path_blocks(node).tolist() == list(range(n // block))
    changed = span(0, n)
    for place in (0, block, 17_000, 99_000):
        changed[place] = -1
        assert index.match("s", changed) == place // block * block
        changed[place] = place


def test_a_detached_scope_is_not_matched_and_forgotten_with_its_last_lease() -> None:
    index = PrefixIndex(1)
    node = insert(index, span(0, 4), span(0, 4))
    index.pin(node)
    root = index.detach("s")
    assert root is not None
    assert root.detached
    assert index.match("s", span(0, 4)) == 0
    assert index.roots() == [root]
    index.unpin(node, 3)
    index.trim(node, 4)
    index.drop_if_empty(root)
    assert index.roots() == []
