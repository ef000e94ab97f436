"""Keys change while the gateway runs; a file that is broken changes nothing."""

import logging
import os
from pathlib import Path

import pytest

from gateway.tenants.keys import hash_of
from gateway.tenants.keys_file import KeysFile, KeysFileError, read_keys
from tests.gateway.tenants.people import whose

NAMES = ("a", "b")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(file: Path, text: str) -> tuple[KeysFile, Clock]:
    file.write_text(text)
    clock = Clock()
    return KeysFile(file, NAMES, clock), clock


def put(file: Path, text: str) -> None:
    """As `mv` does."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, file)


def test_lines_comments_and_ends(file: Path) -> None:
    file.write_text(f"# of today\n\na {hash_of('1')}\nb {hash_of('2')} 2027-01-31 # until then\n")
    first, second = read_keys(file, NAMES)
    assert (first.tenant, first.expires) == ("a", None)
    assert (second.tenant, second.expires) == ("b", 1801353600.0)


def test_the_last_word_makes_a_key_an_admins_with_an_end_or_without(file: Path) -> None:
    file.write_text(f"a {hash_of('1')} admin\nb {hash_of('2')} 2027-01-31 admin\na {hash_of('3')}\n")
    assert [(each.admin, each.expires) for each in read_keys(file, NAMES)] == [
        (True, None),
        (True, 1801353600.0),
        (False, None),
    ]


@pytest.mark.parametrize("more", ["admin 2027-01-31", "root", "2027-01-31 root", "admin admin"])
def test_other_words_behind_a_key_are_refused(file: Path, more: str) -> None:
    file.write_text(f"a {hash_of('1')} {more}\n")
    with pytest.raises(KeysFileError, match="line 1"):
        read_keys(file, NAMES)


def test_a_rotation_needs_no_restart_and_the_old_key_is_gone(file: Path) -> None:
    keys, clock = opened(file, f"a {hash_of('old')}\n")
    put(file, f"a {hash_of('old')}\na {hash_of('new')}\n")
    assert whose([keys], b"new") is None  # within the second
    clock.now = 1.0
    assert [whose([keys], key) for key in (b"old", b"new")] == ["a", "a"]
    put(file, f"a {hash_of('new')}\n")
    clock.now = 2.0
    assert [whose([keys], key) for key in (b"old", b"new")] == [None, "a"]


def test_an_empty_file_is_no_key_at_all(file: Path) -> None:
    keys, clock = opened(file, f"a {hash_of('old')}\n")
    put(file, "")
    clock.now = 1.0
    assert whose([keys], b"old") is None


@pytest.mark.parametrize("broken", ["a not-a-hash\n", "nobody " + hash_of("x"), "a\n", b"\xff\xfe", None])
def test_a_broken_file_changes_nothing_and_is_said_once(
    file: Path, broken: str | bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    keys, clock = opened(file, f"a {hash_of('old')}\n")
    if broken is None:
        file.unlink()
    else:
        file.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    with caplog.at_level(logging.WARNING, "kvgate.gateway"):
        for second in range(1, 5):
            clock.now = float(second)
            assert whose([keys], b"old") == "a"
    assert [record.getMessage() for record in caplog.records] == ["the keys stay as they were"]
    put(file, f"a {hash_of('new')}\n")
    clock.now = 10.0
    assert [whose([keys], key) for key in (b"old", b"new")] == [None, "a"]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_plain_file_is_not_waited_for(file: Path, kind: str) -> None:
    keys, clock = opened(file, f"a {hash_of('old')}\n")
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    clock.now = 1.0
    assert whose([keys], b"old") == "a"
    with pytest.raises(KeysFileError, match="no plain file"):
        read_keys(file, NAMES)


def test_a_key_written_in_the_clear_is_not_repeated(file: Path) -> None:
    file.write_text("# keys\na kvg_somebody-wrote-the-key-itself\n")
    with pytest.raises(KeysFileError, match="line 2") as refused:
        read_keys(file, NAMES)
    assert "somebody" not in str(refused.value)


def test_a_file_that_is_not_there_at_the_start_is_refused(file: Path) -> None:
    with pytest.raises(KeysFileError, match="cannot be read"):
        KeysFile(file, NAMES)
