"""Many threads on one disk tier: what comes back is right, and nothing is lost without a reason."""

import random
import threading
from pathlib import Path

import pytest

from tests.cache_core.tiers.blocks import IDENTITY, OTHER, headers_of, opened, put, served


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
