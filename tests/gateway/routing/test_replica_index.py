"""The index against a naive model that keeps whole prompts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.routing.chain import BLOCK, CHUNK
from gateway.routing.replica_index import ReplicaIndex, Sending
from tests.gateway.routing.prompts import chain, tokens

REPLICAS = ["a", "b", "c"]
PIECES = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from([8, 16, 100, 512, 700])), min_size=1, max_size=6
)


def common(a: np.ndarray, b: np.ndarray) -> int:
    """Tokens that both begin with."""
    shorter = min(len(a), len(b))
    differ = np.flatnonzero(a[:shorter] != b[:shorter])
    return int(differ[0]) if len(differ) else shorter


def send(index: ReplicaIndex, replica: str, ids: np.ndarray) -> Sending:
    prompt = chain(ids)
    found = dict(zip(REPLICAS, index.matched(prompt, REPLICAS), strict=True))
    return index.send(replica, prompt, found[replica], max(found.values()))


def matched(index: ReplicaIndex, ids: np.ndarray) -> dict[str, int]:
    return dict(zip(REPLICAS, index.matched(chain(ids), REPLICAS), strict=True))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(REPLICAS), PIECES), max_size=8), PIECES)
def test_it_finds_what_prompts_share_and_never_more(sent, asked) -> None:
    index, ids = ReplicaIndex(), tokens(*asked)
    for replica, runs in sent:
        send(index, replica, tokens(*runs))
    found = matched(index, ids)
    for replica in REPLICAS:
        had = [common(ids, tokens(*runs)) for to, runs in sent if to == replica]
        most = max(had, default=0)
        assert found[replica] <= most // BLOCK * BLOCK
        # Whole chunks are always found; where prompts part inside a chunk, its blocks may not be kept.
        assert found[replica] >= most // CHUNK * CHUNK


def test_a_next_turn_is_found_to_the_block() -> None:
    index = ReplicaIndex()
    send(index, "a", tokens((1, 1300)))
    assert matched(index, tokens((1, 1300), (2, 200))) == {"a": 1296, "b": 0, "c": 0}


def test_a_short_shared_head_is_found_to_the_block() -> None:
    index = ReplicaIndex()
    send(index, "a", tokens((1, 320), (2, 900)))
    assert matched(index, tokens((1, 320), (3, 900)))["a"] == 320


def test_where_two_prompts_parted_a_third_is_found_to_the_block() -> None:
    index = ReplicaIndex()
    send(index, "a", tokens((1, 1400), (2, 2000)))
    send(index, "a", tokens((1, 1400), (3, 2000)))
    assert matched(index, tokens((1, 1400), (4, 2000)))["a"] == 1392


def test_nothing_is_found_under_another_seed() -> None:
    index = ReplicaIndex()
    send(index, "a", tokens((1, 2000)))
    assert index.matched(chain(tokens((1, 2000)), b"other"), ["a"]) == [0]


def test_what_was_evicted_is_believed_no_more_and_neither_is_what_is_older() -> None:
    index = ReplicaIndex()
    for number in (1, 2, 3, 4):
        index.ended(send(index, "a", tokens((number, 2048))), None)
    index.ended(send(index, "a", tokens((2, 2048))), 0)  # it was expected, and was not there
    assert matched(index, tokens((1, 2048)))["a"] == 0
    assert [matched(index, tokens((number, 2048)))["a"] for number in (2, 3, 4)] == [2048] * 3


def test_what_was_still_being_computed_is_no_sign_of_eviction() -> None:
    index = ReplicaIndex()
    index.ended(send(index, "a", tokens((1, 2048))), None)
    first = send(index, "a", tokens((2, 2048)))
    second = send(index, "a", tokens((2, 2048)))
    index.ended(second, 0)
    assert matched(index, tokens((1, 2048)))["a"] == 2048
    index.ended(first, 0)


def test_a_prompt_that_never_got_there_is_forgotten_and_what_was_there_before_stays() -> None:
    index = ReplicaIndex()
    index.ended(send(index, "a", tokens((1, 1024))), None)
    index.withdraw(send(index, "a", tokens((1, 1024), (2, 2048))))
    assert matched(index, tokens((1, 1024), (2, 2048)))["a"] == 1024


def test_capacity_evicts_ends_before_beginnings() -> None:
    index = ReplicaIndex(capacity=4 * CHUNK)
    send(index, "a", tokens((1, 3 * CHUNK)))
    send(index, "a", tokens((2, 2 * CHUNK)))
    assert matched(index, tokens((1, 3 * CHUNK)))["a"] == 2 * CHUNK
    assert matched(index, tokens((2, 2 * CHUNK)))["a"] == 2 * CHUNK


def test_many_who_want_a_prefix_at_once_are_counted_until_they_end() -> None:
    index, ids = ReplicaIndex(), tokens((1, 1024))
    index.ended(send(index, "a", ids), None)
    running = [send(index, "a", np.append(ids, tokens((number, 600)))) for number in (2, 3, 4)]
    assert index.heat(chain(ids), 1024) == 3
    for each in running:
        index.ended(each, None)
    assert index.heat(chain(ids), 1024) == 0


class IndexMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order, the books agree and nothing is predicted that was never sent."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ReplicaIndex(max_keys=150)
        self.sent: dict[str, list[np.ndarray]] = {replica: [] for replica in REPLICAS}
        self.running: list[Sending] = []

    @rule(replica=st.sampled_from(REPLICAS), runs=PIECES)
    def send(self, replica: str, runs: list[tuple[int, int]]) -> None:
        ids = tokens(*runs)
        self.running.append(send(self.index, replica, ids))
        self.sent[replica].append(ids)

    @rule(place=st.integers(0, 9), share=st.sampled_from([None, 0.0, 0.5, 1.0]))
    def end(self, place: int, share: float | None) -> None:
        if self.running:
            sent = self.running.pop(place % len(self.running))
            self.index.ended(sent, None if share is None else int(share * sent.chain.tokens))

    @rule(place=st.integers(0, 9))
    def withdraw(self, place: int) -> None:
        if self.running:
            self.index.withdraw(self.running.pop(place % len(self.running)))

    @rule(replica=st.sampled_from(REPLICAS))
    def clear(self, replica: str) -> None:
        self.index.cleared(replica)
        self.sent[replica].clear()

    @rule(replica=st.sampled_from(REPLICAS), runs=PIECES)
    def remove(self, replica: str, runs: list[tuple[int, int]]) -> None:
        self.index.removed(replica, chain(tokens(*runs)).keys)

    @rule(runs=PIECES)
    def nothing_is_found_that_was_not_sent(self, runs: list[tuple[int, int]]) -> None:
        ids = tokens(*runs)
        for replica, found in matched(self.index, ids).items():
            assert found <= max((common(ids, each) for each in self.sent[replica]), default=0)

    @invariant()
    def the_books_agree(self) -> None:
        self.index.check()
        assert len(self.index) <= 150


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
