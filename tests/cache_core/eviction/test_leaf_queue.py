from hypothesis import given
from hypothesis import strategies as st

from cache_core.eviction.leaf_queue import LeafQueue
from cache_core.node import Node, Root


def leaf(key: int) -> Node:
    node = Node(Root("s"), b"\0" * 4, b"\0" * 4)
    node.last_access = key
    return node


def queue() -> LeafQueue:
    return LeafQueue(lambda node: node.last_access)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_leaves_come_by_their_newest_keys(keys: list[tuple[int, int]]) -> None:
    waiting = queue()
    nodes = [leaf(first) for first, _ in keys]
    for node, (_, raised) in zip(nodes, keys, strict=True):
        waiting.offer(node)
        node.last_access += raised
    popped = [waiting.pop() for _ in nodes]
    assert [node.last_access for node in popped if node] == sorted(a + b for a, b in keys)
    assert waiting.pop() is None


def test_a_leaf_whose_key_fell_moves_forward_when_it_is_offered_again() -> None:
    waiting, fallen, other = queue(), leaf(9), leaf(5)
    waiting.offer(fallen)
    waiting.offer(other)
    fallen.last_access = 1
    waiting.offer(fallen)
    assert [waiting.pop() for _ in range(3)] == [fallen, other, None]


def test_nodes_that_left_the_tree_are_let_go_of() -> None:
    waiting, kept = queue(), leaf(10_000)
    waiting.offer(kept)
    for key in range(5_000):
        node = leaf(key)
        waiting.offer(node)
        node.parent = None
    assert len(waiting) < 2_000
    assert waiting.pop() is kept


@given(st.lists(st.integers(0, 100), unique=True), st.lists(st.integers(101, 200), unique=True))
def test_a_new_order_holds_for_old_and_new_entries(old: list[int], new: list[int]) -> None:
    waiting, sign = queue(), -1
    waiting = LeafQueue(lambda node: sign * node.last_access)
    for key in old:
        waiting.offer(leaf(key))
    sign = 1
    waiting.reorder()
    for key in new:
        waiting.offer(leaf(key))
    popped = [waiting.pop() for _ in (*old, *new)]
    assert [node.last_access for node in popped if node] == sorted(old + new)


def test_entries_move_to_a_new_order_a_few_at_a_time_and_none_is_lost() -> None:
    waiting = queue()
    nodes = [leaf(key) for key in range(3_000)]
    for node in nodes:
        waiting.offer(node)
    waiting.reorder()
    assert waiting.pop() is not None
    assert len(waiting._waiting) > 0
    assert {waiting.pop() for _ in range(2_999)} < set(nodes)
    assert waiting.pop() is None
