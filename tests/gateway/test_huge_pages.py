import subprocess
import sys
from pathlib import Path

import pytest

from gateway.huge_pages import heaps, use_huge_pages

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPS = """\
55d000000000-55d000600000 rw-p 00000000 00:00 0                          [heap]
7f0000100000-7f0000900000 rw-p 00000000 00:00 0
7f0001000000-7f0001200000 rw-p 00000000 fe:00 26933                      /usr/lib/libpython3.11.so.1.0
7f0002000000-7f0002400000 r--p 00000000 00:00 0
7f0003000000-7f0003400000 rw-s 00000000 00:01 1024                       /dev/zero (deleted)
7f0004100000-7f00042ff000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00800000 rw-p 00000000 00:00 0                          [stack]
"""

_ASKS = """
from gateway.huge_pages import use_huge_pages
kept = [bytes(64) for _ in range(1_000_000)]
asked = use_huge_pages()
with open("/proc/self/smaps_rollup") as file:
    have = next(int(line.split()[1]) * 1024 for line in file if line.startswith("AnonHugePages"))
print(asked, have, len(kept))
"""


def test_only_whole_huge_pages_of_the_processs_own_memory_are_asked_for() -> None:
    found = list(heaps(_MAPS.splitlines()))
    assert found == [(0x55D000000000, 0x55D000600000), (0x7F0000200000, 0x7F0000800000)]


@pytest.mark.parametrize("setting", ["always madvise [never]\n", None])
def test_where_the_operator_or_the_system_has_none_nothing_is_asked(
    tmp_path: Path, setting: str | None
) -> None:
    file = tmp_path / "enabled"
    if setting is not None:
        file.write_text(setting)
    assert use_huge_pages(file) == 0


@pytest.mark.skipif(
    not _SETTING.exists() or "[never]" in _SETTING.read_text(), reason="this system has no huge pages"
)
def test_what_is_there_is_on_huge_pages_where_linux_has_them() -> None:
    ran = subprocess.run([sys.executable, "-c", _ASKS], check=True, capture_output=True, text=True)
    asked, have, kept = map(int, ran.stdout.split())
    assert kept == 1_000_000
    assert asked >= 16 << 20
    assert have > 0
