"""What docs/ledger.md says is so."""

import re
from pathlib import Path
from typing import get_args

import pytest

from gateway.ledger import GapCause, WriterSettings
from gateway.ledger.place import ledger_url, private_file, state_dir
from gateway.ledger.prices import PriceTable
from gateway.ledger.schema import requests

PAGE = Path(__file__).parents[3] / "docs" / "ledger.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


def test_every_column_is_in_the_table(page: str) -> None:
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    shortened = {f"divergence{name}" for name in named if name.startswith("_")}
    assert {column.name for column in requests.c} - {"seq"} <= named | shortened


def test_every_cause_of_a_gap_is_explained(page: str) -> None:
    for cause in get_args(GapCause):
        assert f"| `{cause}` |" in page


def test_bounds_are_those_of_the_writer(page: str) -> None:
    settings = WriterSettings()
    assert f"{settings.queue_rows:,} rows wait" in page
    assert f"each {settings.batch_rows} rows" in page
    assert settings.interval_s == 0.5
    assert "each half second" in page


def test_the_price_table_is_one(page: str, tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(currency:.*?)```", page, re.DOTALL)
    path = tmp_path / "prices.yaml"
    path.write_text(example)
    price = PriceTable.load(path).of("anything")
    assert price is not None
    assert price.cached == price.input


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"KVGATE_STATE_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/kvgate"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/c"}, "/c/.local/state/kvgate"),
        ({"HOME": "/c"}, "/c/.local/state/kvgate"),
    ],
)
def test_the_state_folder_is_found_in_this_order(environ: dict[str, str], folder: str) -> None:
    assert state_dir(environ) == Path(folder)
    url = ledger_url(None, environ)
    assert url is not None
    assert url.database == f"{folder}/ledger.db"


def test_the_file_and_its_folder_are_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger.db"
    private_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
