"""What an install with given extras brings, and a Python that has nothing else: no environment is built for it."""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGES = ("bench", "cache_core", "canon", "engine_adapters", "gateway")
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_HOOK = (Path(__file__).parent / "only_these.py").read_text()


def image_extras(stage: str) -> list[str]:
    """The extras that a stage of the Dockerfile installs."""
    text = (ROOT / "Dockerfile").read_text()
    found = re.search(rf"AS {stage}\n(?:#.*\n)*RUN \S+ install '\.\[([a-z,]+)\]'", text)
    assert found, f"the Dockerfile's stage {stage} installs nothing"
    return found[1].split(",")


def distributions(extras: Iterable[str]) -> set[str]:
    """The normalized names of all that `pip install '.[extras]'` brings, as far as it is installed here.

    Our own requirements are pyproject.toml's, as an editable install may be older.
    """
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    wanted = [("kvgate", extra) for extra in ("", *extras)]
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found.add(name)
        for required in _requirements(name, extra):
            wanted += [(canonicalize_name(required.name), more) for more in ("", *required.extras)]
    return found


def environment(extras: Iterable[str], folder: Path, *more: str) -> dict[str, str]:
    """What a Python is started with to have, besides our packages, just what such an install brings.

    And `more` distributions, without what they need. It holds for the processes that it starts, too. `folder` is
    written to.
    """
    names = distributions(extras) | set(more)
    (folder / "sitecustomize.py").write_text(_HOOK)
    what = {
        "distributions": sorted(names),
        "files": sorted(file for name in names for file in _files(name)),
        "ours": [str(ROOT / package) for package in PACKAGES],
    }
    (folder / "only_these.json").write_text(json.dumps(what))
    return os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def requirements(extra: str = "") -> list[Requirement]:
    """What pyproject.toml asks for on this platform: the base, or one extra alone."""
    lines = _PROJECT["optional-dependencies"][extra] if extra else _PROJECT["dependencies"]
    found = [Requirement(line) for line in lines]
    return [each for each in found if each.marker is None or each.marker.evaluate()]


def _requirements(name: str, extra: str) -> Iterator[Requirement]:
    if name == "kvgate":
        yield from requirements(extra)
        return
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # another platform's
        return
    for each in map(Requirement, lines):
        if each.marker is None or each.marker.evaluate({"extra": extra}):
            yield each


def _files(name: str) -> Iterator[str]:
    if name == "kvgate":
        return
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return
    for file in found.files or ():
        if file.suffix in (".py", ".so", ".pyd"):
            yield str(Path(str(found.locate_file(file))))
