"""Runs `mooncake_inside.py` against a real Mooncake Store, in a network of its own: its clients listen everywhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import require_that

INSIDE = Path(__file__).with_name("mooncake_inside.py")
IN_A_NETWORK_OF_ITS_OWN = [
    "unshare",
    "--map-root-user",
    "--net",
    "sh",
    "-c",
    'ip link set lo up && exec "$@"',
    "sh",
]


def mooncake_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("KVGATE_CACHE_DIR") or Path(cache, "kvgate")
    return Path(os.environ.get("KVGATE_MOONCAKE") or Path(cache, "mooncake"))


@pytest.mark.engines
def test_a_real_mooncake_store_keeps_the_contract_and_its_failures_are_drops() -> None:
    folder = mooncake_folder()
    there = (folder / "mooncake" / "mooncake_master").exists()
    require_that(there, f"Mooncake Store is not in {folder}: tests/engines/mooncake.sh puts it there")
    ours = (
        all(map(shutil.which, ("unshare", "ip")))
        and not subprocess.run(
            [*IN_A_NETWORK_OF_ITS_OWN, "true"], capture_output=True, check=False
        ).returncode
    )
    require_that(
        ours, "no network of its own: Mooncake needs `unshare --net` and `ip`, which this user may not use"
    )
    root = INSIDE.parents[2]
    result = subprocess.run(
        [
            *IN_A_NETWORK_OF_ITS_OWN,
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            str(INSIDE),
        ],
        cwd=root,
        env=os.environ | {"PYTHONPATH": f"{root}:{folder}", "KVGATE_MOONCAKE": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-2_000:]
