"""An install has every file of our packages, not their Python alone."""

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.installed.closure import PACKAGES, ROOT
from tests.requirements import require

_BUILD = "import setuptools.build_meta as backend; print(backend.build_wheel('dist'))"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image's build has: a copy, since a build writes beside it."""
    folder = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> set[str]:
    """Names of the files in the wheel that is made of it, without those about it."""
    require("setuptools", "pip install 'setuptools>=77'")
    done = subprocess.run(
        [sys.executable, "-c", _BUILD], cwd=source, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    with ZipFile(source / "dist" / done.stdout.split()[-1]) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_a_wheel_has_all_files_of_the_packages_and_no_others(source: Path, wheel: set[str]) -> None:
    files = [each for package in PACKAGES for each in (source / package).rglob("*") if each.is_file()]
    assert wheel == {file.relative_to(source).as_posix() for file in files}


def test_sources_that_are_built_where_they_run_are_among_them(wheel: set[str]) -> None:
    kinds = {Path(name).suffix for name in wheel} | {Path(name).name for name in wheel if "py.typed" in name}
    assert {".py", ".c", ".cpp", ".h", ".lua", "py.typed"} <= kinds
