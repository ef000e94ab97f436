"""Many threads on one disk tier: what comes back is right, and nothing is lost without a reason."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from cache_core.block_header import verify
from cache_core.drop_reason import DropReason
from cache_core.tiers.disk import reader
from tests.cache_core.tiers.blocks import (
    IDENTITY,
    OTHER,
    SIZE,
    FaultyFiles,
    headers_of,
    opened,
    put,
    served,
)
from tests.waiting import PATIENCE_S, wait_until


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_readers_writers_cleaning_and_purges_at_once(tmp_path: Path, share: float) -> None:
    tier = opened(
        tmp_path, capacity_bytes=2 << 20, segment_bytes=60 << 10, clean_below=0.7, scope_share=share
    )
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        try:
            for _ in range(40):
                headers = headers_of(dice.randrange(30) * 100, 5, dice.choice([IDENTITY, OTHER]))
                match dice.randrange(8):
                    case 0:
                        tier.delete([header.key for header in headers])
                    case 1:
                        tier.clean()
                    case 2:
                        tier.purge(OTHER)
                    case 3 | 4:
                        put(tier, headers)
                    case _:
                        served(tier, headers, timeout=dice.choice([None, 60]))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    tier.check_integrity()
    tier.purge(OTHER)
    assert sum(served(tier, headers_of(first * 100, 5, OTHER)) for first in range(30)) == 0
    assert put(tier, headers_of(0, 5)) == served(tier, headers_of(0, 5)) == 5
    tier.close()
    assert not any(b"o" * 32 in path.read_bytes() for path in tmp_path.glob("*.segment"))


def test_while_blocks_are_checked_the_disk_has_more_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, reads, held = FaultyFiles(), 0, threading.Event()
    headers = headers_of(0, 6)
    tier = opened(tmp_path, files, queue_depth=1, read_bytes=1)
    put(tier, headers)

    def counted(method: str) -> None:
        nonlocal reads
        reads += method == "read"

    def slowly(*args: Any) -> None:
        held.wait(PATIENCE_S)
        verify(*args)

    files.hook = counted
    monkeypatch.setattr(reader, "verify", slowly)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(served(tier, headers)))
    thread.start()
    wait_until(lambda: reads == len(headers), "reads that wait for no check")
    assert not found
    held.set()
    thread.join(PATIENCE_S)
    assert found == [len(headers)]
    tier.close()


def test_what_is_wrong_in_one_of_many_reads_is_dropped_alone(tmp_path: Path) -> None:
    headers = headers_of(0, 9)
    tier = opened(tmp_path, queue_depth=3, read_bytes=1)
    put(tier, headers)
    (segment,) = tmp_path.glob("*.segment")
    with segment.open("r+b") as file:
        file.seek(2 * (4096 + SIZE) + 4096 + 7)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    assert served(tier, headers) == len(headers) - 1
    assert tier.stats().drops == {DropReason.CHECKSUM: 1}
    tier.close()
