"""A folder of the cache is whole or not there, whenever its builder is killed."""

import signal
import threading
from pathlib import Path

import pytest

from engine_adapters.embedded.models import (
    ModelCacheError,
    UnusableCheckpointError,
    cache_dir,
    silent,
)
from engine_adapters.embedded.models.cache_folder import MANIFEST, build_once, is_whole
from tests.processes import run_python


class TestCacheDir:
    def test_kvgate_cache_dir_wins(self) -> None:
        environ = {"KVGATE_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}
        assert cache_dir(environ) == Path("/a")

    def test_then_the_xdg_folder(self) -> None:
        assert cache_dir({"XDG_CACHE_HOME": "/b", "HOME": "/c"}) == Path("/b/kvgate")

    @pytest.mark.parametrize("xdg", ["", "relative"])
    def test_a_useless_xdg_folder_is_ignored(self, xdg: str) -> None:
        assert cache_dir({"XDG_CACHE_HOME": xdg, "HOME": "/c"}) == Path("/c/.cache/kvgate")


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(name)


def write_two(folder: Path) -> None:
    write(folder, "one.json", "two.json")


class TestBuildOnce:
    def test_builds_at_the_first_call_only(self, tmp_path: Path) -> None:
        calls: list[Path] = []

        def build(folder: Path) -> None:
            calls.append(folder)
            write_two(folder)

        target = tmp_path / "cache" / "model"
        assert build_once(target, "a", build, silent) == build_once(target, "a", build, silent) == target
        assert len(calls) == 1
        assert (target / "two.json").read_text() == "two.json"

    @pytest.mark.parametrize(
        "damage", ["missing", "shorter", "other bytes", "no manifest", "manifest cut off"]
    )
    def test_notices_damage_and_builds_anew(self, tmp_path: Path, damage: str) -> None:
        target = build_once(tmp_path / "model", "a", write_two, silent)
        match damage:
            case "missing":
                (target / "two.json").unlink()
            case "shorter":
                (target / "two.json").write_text("two")
            case "other bytes":
                (target / "two.json").write_text("TWO.json")
            case "no manifest":
                (target / MANIFEST).unlink()
            case "manifest cut off":
                (target / MANIFEST).write_text((target / MANIFEST).read_text()[:20])
        assert not is_whole(target, "a")
        lines: list[str] = []
        build_once(target, "a", write_two, lines.append)
        assert is_whole(target, "a")
        assert (target / "two.json").read_text() == "two.json"
        assert "damaged" in lines[0]

    def test_another_source_is_built_anew(self, tmp_path: Path) -> None:
        target = build_once(tmp_path / "model", "a", write_two, silent)
        build_once(target, "b", lambda folder: write(folder, "new.json"), silent)
        assert [path.name for path in sorted(target.iterdir())] == [MANIFEST, "new.json"]

    def test_a_failing_build_leaves_nothing_behind(self, tmp_path: Path) -> None:
        def build(folder: Path) -> None:
            write_two(folder)
            raise UnusableCheckpointError("no")

        with pytest.raises(UnusableCheckpointError):
            build_once(tmp_path / "model", "a", build, silent)
        assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]

    def test_a_failing_rebuild_keeps_the_old_folder(self, tmp_path: Path) -> None:
        def build(folder: Path) -> None:
            raise UnusableCheckpointError("no")

        target = build_once(tmp_path / "model", "a", write_two, silent)
        with pytest.raises(UnusableCheckpointError):
            build_once(target, "b", build, silent)
        assert is_whole(target, "a")

    def test_a_cache_that_cannot_be_written_names_the_way_out(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ModelCacheError, match="KVGATE_CACHE_DIR"):
            build_once(tmp_path / "file" / "model", "a", write_two, silent)

    def test_two_at_once_build_once(self, tmp_path: Path) -> None:
        building, finish = threading.Event(), threading.Event()
        built: list[str] = []
        waiting: list[str] = []

        def build(folder: Path) -> None:
            built.append(folder.name)
            write_two(folder)
            building.set()
            assert finish.wait(120)

        def wait_for_it(line: str) -> None:
            waiting.append(line)
            finish.set()

        target = tmp_path / "model"
        first = threading.Thread(target=build_once, args=(target, "a", build, silent))
        second = threading.Thread(target=build_once, args=(target, "a", build, wait_for_it))
        first.start()
        assert building.wait(120)
        second.start()
        first.join(120)
        second.join(120)
        assert len(built) == 1
        assert "another process" in waiting[0]
        assert is_whole(target, "a")


KILLED_BUILDER = """
    import os, signal, sys
    from pathlib import Path
    from engine_adapters.embedded.models import cache_folder

    target, steps = Path(sys.argv[1]), int(sys.argv[2])

    def die_after(function):
        def counted(*args, **kwargs):
            global steps
            if steps == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            steps -= 1
            return function(*args, **kwargs)
        return counted

    for name in ("rename", "chmod", "write_text", "mkdir"):
        setattr(Path, name, die_after(getattr(Path, name)))
    cache_folder._flush = die_after(cache_folder._flush)

    def build(folder):
        (folder / "one.json").write_text("1")
        (folder / "two.json").write_text("22")

    cache_folder.build_once(target, "new", build, print)
    print("survived")
"""


@pytest.mark.parametrize("old", [False, True], ids=["first build", "rebuild"])
def test_killed_at_any_step_the_folder_is_whole_or_not_used(tmp_path: Path, old: bool) -> None:
    survived = False
    for step in range(40):
        target = tmp_path / str(step) / "model"
        if old:
            build_once(target, "old", lambda folder: write(folder, "old.json"), silent)
        done = run_python(KILLED_BUILDER, str(target), str(step))
        survived = "survived" in done.stdout
        assert survived or done.returncode == -signal.SIGKILL, done.stderr
        if target.exists():
            assert is_whole(target, "new") or is_whole(target, "old")
        build_once(target, "new", write_two, silent)
        assert is_whole(target, "new")
        assert sorted(path.name for path in target.parent.iterdir()) == [".model.lock", "model"]
        if survived:
            break
    assert survived
    assert step > 8
