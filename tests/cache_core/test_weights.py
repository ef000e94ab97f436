"""Other weights, another digest; the same ones are not read twice."""

import json
import os
from pathlib import Path

import pytest

from cache_core.weights import UpdateEpoch, weights_digest, weights_stat

FAR = 1 << 62  # a time when every file is old enough to be remembered


def later() -> int:
    return FAR


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(b"first" * 1000)
    (folder / "b.safetensors").write_bytes(b"second" * 1000)
    (folder / "README.md").write_text("not weights")
    return folder


def test_names_and_contents_count_and_nothing_else(folder: Path) -> None:
    before = weights_digest(folder)
    (folder / "README.md").write_text("changed")
    assert weights_digest(folder) == before
    (folder / "a.safetensors").rename(folder / "c.safetensors")
    renamed = weights_digest(folder)
    (folder / "c.safetensors").write_bytes(b"other" * 1000)
    assert len({before, renamed, weights_digest(folder)}) == 3


def test_one_file_is_enough(folder: Path) -> None:
    assert weights_digest(folder / "a.safetensors") != weights_digest(folder / "b.safetensors")


def test_a_remembered_file_is_not_read_again(folder: Path, tmp_path: Path) -> None:
    memo = tmp_path / "memo.json"
    first = weights_digest(folder, memo, later)
    text = memo.read_text()
    stored = weights_digest(folder / "a.safetensors")
    name = str(folder / "a.safetensors")
    assert name in text
    assert (memo.stat().st_mode & 0o777) == 0o600
    # a memo that lies shows that it is believed
    memo.write_text(text.replace(_file_hash(folder / "a.safetensors"), "0" * 64))
    assert weights_digest(folder, memo, later) != first
    assert weights_digest(folder / "a.safetensors") == stored


def _file_hash(file: Path) -> str:
    import hashlib

    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_change_that_keeps_size_and_time_is_seen(folder: Path, tmp_path: Path) -> None:
    memo = tmp_path / "memo.json"
    first = weights_digest(folder, memo, later)
    file = folder / "a.safetensors"
    stat = file.stat()
    file.write_bytes(b"tsrif" * 1000)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert weights_digest(folder, memo, later) != first


def test_of_files_that_are_gone_nothing_is_remembered(folder: Path, tmp_path: Path) -> None:
    memo = tmp_path / "memo.json"
    weights_digest(folder, memo, later)
    (folder / "a.safetensors").rename(folder / "c.safetensors")
    weights_digest(folder, memo, later)
    assert {Path(name).name for name in json.loads(memo.read_text())} == {"b.safetensors", "c.safetensors"}


def test_files_that_were_replaced_have_another_stat_and_others_the_same(folder: Path) -> None:
    before = weights_stat(folder)
    (folder / "README.md").write_text("changed")
    assert weights_stat(folder) == before
    other = folder / "other"
    other.write_bytes((folder / "a.safetensors").read_bytes())
    other.replace(folder / "a.safetensors")
    assert weights_stat(folder) != before


def test_a_file_that_was_just_written_is_not_remembered(folder: Path, tmp_path: Path) -> None:
    memo = tmp_path / "memo.json"
    weights_digest(folder, memo)
    assert not memo.exists()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"x": 1}', '{"x": [[1], "y"]}', "\0"])
def test_a_damaged_memo_costs_only_time(folder: Path, tmp_path: Path, damage: str) -> None:
    memo = tmp_path / "memo.json"
    memo.write_text(damage)
    assert weights_digest(folder, memo, later) == weights_digest(folder)


def test_a_memo_that_cannot_be_written_costs_only_time(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert weights_digest(folder, tmp_path / "file" / "memo.json", later) == weights_digest(folder)


def test_no_weights_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        weights_digest(tmp_path)


def test_a_change_in_place_without_a_name_is_an_epoch_that_never_was() -> None:
    epoch = UpdateEpoch(b"w" * 32)
    seen = {epoch.value, epoch.changed(), epoch.changed(), epoch.changed(b"step 7"), epoch.changed(b"w" * 32)}
    assert len(seen) == 5
    assert UpdateEpoch(b"w" * 32).value in seen, "the same weights loaded anew are the same epoch"
    assert UpdateEpoch(b"").changed(b"step 7") in seen
