"""Files that change are noticed once, when they have come to rest, also through the links of a ConfigMap."""

import os
from pathlib import Path

from gateway.reload.file_watch import FileWatch


def noticed(watch: FileWatch) -> bool:
    """A change counts at the second look."""
    return any([watch.changed(), watch.changed()])


def test_a_change_is_noticed_once(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    watch = FileWatch([file])
    assert not noticed(watch)
    file.write_text("22")
    assert noticed(watch)
    assert not noticed(watch)


def test_a_file_that_is_still_written_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    watch = FileWatch([file])
    for size in range(2, 6):
        file.write_text("x" * size)
        assert not watch.changed()
    assert watch.changed()


def test_a_config_map_that_is_swapped_is_noticed(tmp_path: Path) -> None:
    """Kubernetes: the file links to ..data/FILE, ..data links to a folder, and that link is replaced."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kvgate.yaml").write_text("same size")
        os.utime(tmp_path / name / "kvgate.yaml", ns=(1, 1))
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "kvgate.yaml").symlink_to("..data/kvgate.yaml")
    watch = FileWatch([tmp_path / "kvgate.yaml"])
    assert not noticed(watch)
    (tmp_path / "..data_tmp").symlink_to("two")
    os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
    assert noticed(watch)


def test_a_file_that_goes_and_comes_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a"
    watch = FileWatch([file])
    assert not noticed(watch)
    file.write_text("1")
    assert noticed(watch)
    file.unlink()
    assert noticed(watch)


def test_other_files_are_watched_from_then_on_and_a_change_in_between_is_not_lost(tmp_path: Path) -> None:
    kept, gone, new = (tmp_path / name for name in ("kept", "gone", "new"))
    for file in (kept, gone, new):
        file.write_text("1")
    watch = FileWatch([kept, gone])
    kept.write_text("22")
    watch.look([kept, new])
    gone.write_text("22")
    assert noticed(watch)
    assert not noticed(watch)
    new.write_text("22")
    assert noticed(watch)
