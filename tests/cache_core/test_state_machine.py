"""Random use of the whole cache against a naive dictionary model, every invariant checked after every step."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cache_core import LeaseReleasedError, OutOfBlocksError, prefix_index
from cache_core.prefix_index import nodes_below
from tests.cache_core.simulation import Model, ModelLease, Prefix, SimulatedCache, array

SCOPES = st.sampled_from(["a", "b"])
TOKENS = st.builds(
    lambda length, bits: tuple(bits >> place & 1 for place in range(length)),
    st.integers(0, 20),
    # few bits set: most prefixes agree for a while, and leave each other anywhere
    st.one_of(st.integers(0, 19).map(lambda place: 1 << place), st.integers(0, 2**20 - 1)),
)
WHICH = st.integers(0, 5)


class CacheMachine(RuleBasedStateMachine):
    """Two letters and two scopes, so that prefixes collide and edges split in their middle all the time."""

    @initialize(
        block=st.sampled_from([1, 2, 4]), num_blocks=st.integers(6, 40), label=st.sampled_from([2, 3, 64])
    )
    def start(self, block: int, num_blocks: int, label: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(prefix_index, "_MAX_LABEL", label * 4 * block)
        self.patch.setattr(prefix_index, "_MAX_GROWN", max(label // 2, 1) * 4 * block)
        self.simulated = SimulatedCache(num_blocks, block)
        self.cache = self.simulated.cache
        self.model = Model(num_blocks, block)
        self.seen_version = self.cache.version
        self.seen_ready: set[object] = set()

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        for m in list(self.model.leases):
            self.release(m)
        self.all_is_well()
        self.cache.evict(self.model.num_blocks)
        self.cache.check_integrity()
        assert self.cache.stats().free == self.model.num_blocks, "a block leaked"
        assert self.cache._index.roots() == [], "an empty scope is still remembered"
        assert self.cache._in_flight._owners == {}, "a released lease is still announced"
        self.patch.undo()

    def pick(self, which: int) -> ModelLease:
        return self.model.leases[which % len(self.model.leases)]

    def has_leases(self) -> bool:
        return bool(self.model.leases)

    def make_room(self, needed: int) -> bool:
        """What an allocation does in the model; False where it must fail."""
        if needed > self.model.available():
            return False
        self.model.evict(max(needed - self.model.free(), 0))
        return True

    @precondition(lambda self: len(self.model.leases) < 6)
    @rule(tokens=TOKENS, scope=SCOPES)
    def acquire(self, tokens: Prefix, scope: str) -> None:
        self.acquired(tokens, scope)

    def acquired(self, tokens: Prefix, scope: str) -> ModelLease:
        place = self.model.place(scope)
        matched = self.model.match(place, tokens[: self.model.reusable(len(tokens))])
        lease = self.cache.acquire(array(tokens), scope)
        assert lease.matched == lease.ready == lease.length == matched
        to_compute = len(tokens) // self.model.block * self.model.block > matched
        assert lease.announced == to_compute
        self.model.touch(place, tokens[:matched])
        m = ModelLease(
            lease, place, list(tokens[:matched]), matched, tokens, to_compute, lease.blocks.tolist()
        )
        self.model.leases.append(m)
        return m

    @precondition(lambda self: len(self.model.leases) < 6)
    @rule(tokens=TOKENS, scope=SCOPES, keep=st.booleans())
    def serve(self, tokens: Prefix, scope: str, keep: bool) -> None:
        m = self.acquired(tokens, scope)
        self.extend(m, tokens[len(m.tokens) :])
        self.commit_upto(m, None)
        if not keep:
            self.release(m)

    @precondition(has_leases)
    @rule(which=WHICH, count=st.integers(1, 8))
    def extend_as_wanted(self, which: int, count: int) -> None:
        m = self.pick(which)
        self.extend(m, m.wanted[len(m.tokens) : len(m.tokens) + count])

    @precondition(has_leases)
    @rule(which=WHICH, tokens=st.lists(st.integers(0, 1), max_size=5).map(tuple))
    def extend_freely(self, which: int, tokens: Prefix) -> None:
        self.extend(self.pick(which), tokens)

    def extend(self, m: ModelLease, tokens: Prefix) -> None:
        block = self.model.block
        needed = -(-(len(m.tokens) + len(tokens)) // block) - -(-len(m.tokens) // block)
        if not self.make_room(needed):
            before = self.cache.stats(), m.lease.blocks.tolist(), self.cache.version
            with pytest.raises(OutOfBlocksError):
                m.lease.extend(array(tokens))
            assert before == (self.cache.stats(), m.lease.blocks.tolist(), self.cache.version)
            return
        m.lease.extend(array(tokens))
        if (
            m.wanted[len(m.tokens) : len(m.tokens) + len(tokens)]
            != tokens[: max(len(m.wanted) - len(m.tokens), 0)]
        ):
            m.announced = False
        m.tokens += tokens
        held = len(m.pages)
        assert m.lease.blocks[:held].tolist() == m.pages, "extending changed blocks that were there"
        m.pages = m.lease.blocks.tolist()

    @precondition(has_leases)
    @rule(which=WHICH, upto=st.one_of(st.none(), st.integers(0, 20)))
    def commit(self, which: int, upto: int | None) -> None:
        self.commit_upto(self.pick(which), upto)

    def commit_upto(self, m: ModelLease, upto: int | None) -> None:
        block = self.model.block
        ready = len(m.tokens) if upto is None else min(upto, len(m.tokens))
        self.simulated.compute(m, ready)
        m.lease.commit(None if upto is None else ready)
        if ready <= m.ready:
            assert m.lease.blocks.tolist() == m.pages
            return
        first, last = m.ready // block, ready // block
        if last > first:
            self.model.now += 1
        for end in range(first + 1, last + 1):
            self.model.ready[m.place, tuple(m.tokens[: end * block])] = self.model.now
        m.ready = ready
        if m.ready // block >= len(m.wanted) // block:
            m.announced = False
        pages = m.lease.blocks.tolist()
        assert pages[:first] == m.pages[:first]
        assert pages[last:] == m.pages[last:]
        m.pages = pages

    @precondition(has_leases)
    @rule(which=WHICH, bits=st.integers(0, 15))
    def decode(self, which: int, bits: int) -> None:
        m = self.pick(which)
        self.extend(m, tuple(bits >> place & 1 for place in range(self.model.block)))
        self.commit_upto(m, None)

    @precondition(lambda self: 0 < len(self.model.leases) < 6)
    @rule(which=WHICH)
    def fork(self, which: int) -> None:
        m = self.pick(which)
        if not self.make_room(1 if m.ready % self.model.block else 0):
            before = self.cache.stats(), self.cache.version
            with pytest.raises(OutOfBlocksError):
                m.lease.fork()
            assert before == (self.cache.stats(), self.cache.version)
            return
        child = m.lease.fork()
        tokens = m.tokens[: m.ready]
        assert child.tokens.tolist() == tokens
        self.model.touch(m.place, tuple(tokens))
        self.model.leases.append(
            ModelLease(child, m.place, tokens, m.ready, tuple(tokens), False, child.blocks.tolist())
        )

    @precondition(has_leases)
    @rule(which=WHICH)
    def abandon(self, which: int) -> None:
        m = self.pick(which)
        m.lease.abandon()
        m.announced = False

    @precondition(has_leases)
    @rule(which=WHICH)
    def release_one(self, which: int) -> None:
        self.release(self.pick(which))

    def release(self, m: ModelLease) -> None:
        m.lease.release()
        m.lease.release()
        self.model.drop(m)
        with pytest.raises(LeaseReleasedError):
            m.lease.commit()
        with pytest.raises(LeaseReleasedError):
            m.lease.extend(array(()))

    @rule(count=st.integers(0, 6))
    def evict(self, count: int) -> None:
        assert self.cache.evict(count) == self.model.evict(count)

    @rule(limit=st.integers(1, 4), steps=st.integers(1, 30))
    def compact(self, limit: int, steps: int) -> None:
        """Between any two steps of it everything else may happen."""
        for _ in range(steps):
            moved, version = self.cache.stats().compacted, self.cache.version
            more = self.cache.compact(limit)
            assert 0 <= self.cache.stats().compacted - moved <= limit
            assert self.cache.version == version, "what can be matched did not change"
            self.all_is_well()
            if not more:
                break

    @rule(scope=st.one_of(st.none(), SCOPES), how=st.integers(0, 3))
    def forget(self, scope: str | None, how: int) -> None:
        if how == 0:
            self.flush(scope)
        elif how == 1 and scope:
            assert self.cache.purge(scope) == self.model.purge(scope)

    def flush(self, scope: str | None) -> None:
        gone = 0
        for one in ["a", "b"] if scope is None else [scope]:
            gone += self.model.forget(self.model.place(one))
        assert self.cache.flush(scope) == gone

    @rule(tokens=TOKENS, scope=SCOPES)
    def look(self, tokens: Prefix, scope: str) -> None:
        place = self.model.place(scope)
        assert self.cache.match(array(tokens), scope) == self.model.match(place, tokens)
        found = self.cache.computing(array(tokens), scope)
        assert (found.shared if found else 0) == self.model.computing(place, tokens)
        if found:
            assert found.owner.ready < found.shared
            assert found.owner.wanted[: found.shared].tolist() == list(tokens[: found.shared])

    @invariant()
    def all_is_well(self) -> None:
        if not hasattr(self, "model"):
            return
        self.simulated.scribble_over_free_blocks()
        self.cache.check_integrity()
        self.figures_agree()
        self.the_same_prefixes_are_ready()
        self.leases_hold_what_they_should()
        self.version_grew_with_every_change()

    def figures_agree(self) -> None:
        stats, model = self.cache.stats(), self.model
        assert stats.free == model.free()
        assert stats.filling == model.filling()
        assert stats.cached == len(model.unleased())
        assert stats.leased == len(model.leased())
        assert self.cache.available() == model.available()

    def the_same_prefixes_are_ready(self) -> None:
        held: list[tuple[str, Prefix]] = []
        for root in self.cache._index.roots():
            ends = {root: b""}
            for node in nodes_below(root):
                assert node.parent is not None
                before = ends[node.parent]
                ends[node] = before + node.label
                tokens = tuple(np.frombuffer(ends[node], dtype=np.int32).tolist())
                known = len(before) // 4
                new = [p for p in self.model.prefixes(tokens) if len(p) > known]
                held += [(root.scope, p) for p in new]
                if not root.detached:
                    self.simulated.assert_cached(self.model.place(root.scope), new, node.block_ids().tolist())
        assert sorted(held) == sorted((scope, prefix) for (scope, _), prefix in self.model.ready)

    def leases_hold_what_they_should(self) -> None:
        for m in self.model.leases:
            assert m.lease.tokens.tolist() == m.tokens
            assert m.lease.blocks.tolist() == m.pages, "a page table changed by another lease's doing"
            assert (m.lease.ready, m.lease.announced) == (m.ready, m.announced)
            self.simulated.assert_holds(m)

    def version_grew_with_every_change(self) -> None:
        ready = set(self.model.ready)
        assert self.cache.version >= self.seen_version
        if ready != self.seen_ready:
            assert self.cache.version > self.seen_version
        self.seen_version, self.seen_ready = self.cache.version, ready


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
