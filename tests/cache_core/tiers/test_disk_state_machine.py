"""Random use of a disk tier, with random faults and reopenings, against a dictionary."""

import errno
import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cache_core.tiers.codec import Codec
from cache_core.tiers.disk import DiskTier
from cache_core.tiers.errors import PurgeFailedError
from tests.cache_core.tiers.blocks import IDENTITY, OTHER, FaultyFiles, headers_of, opened, payloads, served

CAPACITY = 600 << 10
CHAINS = st.integers(0, 4)
IDENTITIES = st.sampled_from([IDENTITY, OTHER])
CODECS = [Codec(), Codec(compression=1), Codec(key=b"k" * 32)]


class DiskMachine(RuleBasedStateMachine):
    """A block that comes back is right and was not purged or deleted; without faults nothing is lost."""

    @initialize(codec=st.sampled_from(CODECS), direct=st.booleans(), share=st.sampled_from([0.25, 1.0]))
    def start(self, codec: Codec, direct: bool, share: float) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.codec, self.direct, self.share = codec, direct, share
        self.files = FaultyFiles()
        self.allowed: set[bytes] = set()  # may come back
        self.safe: set[bytes] = set()  # must come back: stored, and nothing went wrong since
        self.reopen()

    def reopen(self) -> None:
        self.tier: DiskTier = opened(
            self.folder, self.files, capacity_bytes=CAPACITY, segment_bytes=40 << 10, codec=self.codec,
            direct=self.direct, clean_below=0.7, scope_share=self.share,
        )  # fmt: skip

    def teardown(self) -> None:
        if not hasattr(self, "folder"):
            return
        self.files.heal()
        self.tier.close()
        shutil.rmtree(self.folder)

    def faulty(self) -> bool:
        return bool(self.files.errors)

    @rule(chain=CHAINS, count=st.integers(1, 6), identity=IDENTITIES)
    def store(self, chain: int, count: int, identity: bytes) -> None:
        headers = headers_of(chain * 100, count, identity)
        evicted = self.tier.stats().evicted or 0
        stored = self.tier.put(headers, payloads(headers))
        for header, there in zip(headers, stored, strict=True):
            if there:
                self.allowed.add(header.key)
                self.safe.add(header.key)
            assert there or self.faulty() or header.key not in self.safe
        assert stored.all() or self.faulty()
        if (self.tier.stats().evicted or 0) != evicted:
            self.safe.clear()  # which segment went is the tier's affair

    @rule(chain=CHAINS, count=st.integers(1, 6), identity=IDENTITIES)
    def load(self, chain: int, count: int, identity: bytes) -> None:
        headers = headers_of(chain * 100, count, identity)
        must = sum(header.key in self.safe for header in headers)
        may = sum(header.key in self.allowed for header in headers)
        found = served(self.tier, headers)
        assert found <= may, "what was purged, deleted or never stored came back"
        if self.faulty():
            self.safe -= {header.key for header in headers}
        else:
            assert found >= must, "a block was lost"

    @rule(chain=CHAINS, count=st.integers(1, 6), identity=IDENTITIES)
    def delete(self, chain: int, count: int, identity: bytes) -> None:
        keys = [header.key for header in headers_of(chain * 100, count, identity)]
        self.tier.delete(keys)
        self.safe -= set(keys)
        # an index that is built anew may find a deleted block again; it is right, only forgotten

    @rule(identity=IDENTITIES)
    def purge(self, identity: bytes) -> None:
        gone = {header.key for chain in range(5) for header in headers_of(chain * 100, 6, identity)}
        if self.faulty():
            self.safe.clear()  # whole segments may be dropped with it
        try:
            self.tier.purge(identity)
        except PurgeFailedError:
            assert self.faulty()
        self.allowed -= gone
        self.safe -= gone
        if not self.faulty():
            segments = [path.read_bytes() for path in self.folder.glob("*.segment")]
            assert not any(key[16:48] in segment for key in gone for segment in segments), "bytes stayed"

    @rule()
    def clean(self) -> None:
        if self.faulty():
            self.safe.clear()
        self.tier.clean()

    @rule(
        methods=st.sets(st.sampled_from(["read", "write", "sync", "open", "unlink", "truncate", "punch"]), min_size=1),
        number=st.sampled_from([errno.EIO, errno.ENOSPC, errno.EACCES]),
    )  # fmt: skip
    def break_disk(self, methods: set[str], number: int) -> None:
        self.files.fail(*methods, with_errno=number)

    @rule()
    def heal_disk(self) -> None:
        self.files.heal()

    @rule(lose_index=st.booleans())
    def restart(self, lose_index: bool) -> None:
        self.files.heal()
        self.tier.close()
        if lose_index:
            for path in self.folder.glob("index*"):
                path.unlink()
        self.reopen()
        for identity in (IDENTITY, OTHER):
            headers = [header for chain in range(5) for header in headers_of(chain * 100, 6, identity)]
            may = sum(header.key in self.allowed for header in headers)
            assert served(self.tier, headers) <= may, "a restart brought back what was purged"

    @rule(seed=st.integers(0, 1 << 30))
    def damage(self, seed: int) -> None:
        """One byte of one segment."""
        dice = random.Random(seed)
        segments = [path for path in self.folder.glob("*.segment") if path.stat().st_size]
        if segments:
            path = dice.choice(sorted(segments))
            at = dice.randrange(path.stat().st_size)
            with path.open("r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << dice.randrange(8)]))
            self.safe.clear()

    @invariant()
    def within_budget(self) -> None:
        if hasattr(self, "tier") and not self.faulty():
            assert (self.tier.stats().used_bytes or 0) <= CAPACITY
            self.tier.check_integrity()


DiskMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestDiskMachine = DiskMachine.TestCase
