"""docs/walkthrough.md names what is really there, and README.md leads to every page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("gateway", "canon", "engine_adapters", "cache_core", "bench")
WALKTHROUGH = (ROOT / "docs" / "walkthrough.md").read_text("utf-8")
_FOLDERS = {
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package, *(ROOT / package).rglob("*"))
    if path.is_dir() and path.name != "__pycache__"
}


def _is_there(named: str, known: set[str]) -> bool:
    return any(f"/{each}".endswith(f"/{named}") for each in known)


def test_every_folder_of_the_gateway_has_its_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)/` \|", WALKTHROUGH, re.MULTILINE))
    folders = {path.parent.name for path in (ROOT / "gateway").glob("*/__init__.py")}
    assert folders
    assert folders - rows == set()


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`([\w/]+\.py)`", WALKTHROUGH))))
def test_every_file_it_names_is_there(named: str) -> None:
    files = {
        path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    assert _is_there(named, files)


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`([\w/]+)/`", WALKTHROUGH))))
def test_every_folder_it_names_is_there(named: str) -> None:
    assert _is_there(named, _FOLDERS)


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\(docs/(\w+\.md)", (ROOT / "README.md").read_text("utf-8")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == linked
