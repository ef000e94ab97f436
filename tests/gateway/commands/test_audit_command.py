"""`kvgate audit`: three forms of one report, and an exit code that says no."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy.engine import make_url

from gateway.commands.audit import command, words
from gateway.ledger import Database, LedgerRow
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.scrapes import Scrape, ScrapeStore

NOW = 1_800_000_000.0
ROW = LedgerRow(
    "1", "a<b>", "m", "chat", engine="e", arrival=NOW - 60, first_token=NOW - 59.5, end=NOW - 59, stream=True,
    status=200, prompt=1000, reused=800, by_tier={"device": 600, "host": 200}, completion=6, predicted=992,
    reuse_status="reported", block_size=16, gap_cause="evicted",
)  # fmt: skip
ROWS = [
    ROW,
    replace(ROW, reused=0, by_tier={}),
    replace(ROW, reused=None, by_tier={}, reuse_status="not_reported"),
]


def written(folder: Path, rows: list[LedgerRow]) -> str:
    path = folder / "ledger.db"
    database = Database(make_url(f"sqlite:///{path}"))
    database.prepare()
    if rows:
        database.write(Batch("test", 1, [encoded(row) for row in rows]))
    database.close()
    return str(path)


def ran(
    ledger: str, form: command.Format = "table", since: str | None = "1h", by: tuple[str, ...] = ()
) -> int:
    return command.run(ledger, {}, since, by, form, NOW)


def test_json_has_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert ran(written(tmp_path, ROWS), "json", by=("tenant",)) == command.FINE
    report = json.loads(capsys.readouterr().out)
    assert report["seconds"] == 3600
    assert report["total"]["reuse_rate"] == 0.4
    assert report["total"]["classes"]["not reported"]["requests"] == 1
    assert report["groups"][0]["key"] == {"tenant": "a<b>"}
    assert report["total"]["tiers"] == {"device": 600, "host": 200}
    assert report["causes"][0] == {"kind": "gap", "cause": "evicted", "tokens": 1184, "requests": 2}


def test_the_table_shows_classes_apart_and_what_is_not_known_as_a_dash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert ran(written(tmp_path, ROWS), by=("tenant",)) == command.FINE
    out = capsys.readouterr().out
    assert "reuse rate 40.0%" in out
    for name in ("cold", "partial", "warm", "too short", "not reported", "inconsistent"):
        assert name in out
    silent = next(line for line in out.splitlines() if "not reported" in line)
    assert re.search(r"1 │ 33.3% │\s+1,000 │\s+- │", silent)
    assert "evicted" in out


class _Well(HTMLParser):
    """Counts tags that are open."""

    VOID = ("meta", "rect", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [name for name, _ in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Nothing opens."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_loads_nothing_and_escapes_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert ran(written(tmp_path, ROWS), "html", by=("tenant",)) == command.FINE
    page = capsys.readouterr().out
    parser = _Well()
    parser.feed(page)
    assert parser.open == []
    assert parser.loads == []
    assert "a<b>" not in page
    assert "a&lt;b&gt;" in page
    assert "<svg" in page
    assert "40.0%" in page


def test_figures_that_cannot_be_true_make_it_say_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ledger = written(tmp_path, [replace(ROW, reused=1001, reuse_status="inconsistent")])
    for form in ("table", "json", "html"):
        assert ran(ledger, form) == command.WRONG
        said = capsys.readouterr()
        assert "more reused tokens than the prompt" in said.out
        assert "cannot be true" in said.err


def test_older_requests_are_not_in_the_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert ran(written(tmp_path, ROWS), "json", since="30s") == command.FINE
    assert json.loads(capsys.readouterr().out)["total"]["requests"] == 0


@pytest.mark.parametrize("form", ["table", "html", "json"])
def test_an_empty_window_is_a_report_too(
    form: command.Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert ran(written(tmp_path, []), form, since=None) == command.FINE
    assert "0.0%" not in capsys.readouterr().out.replace("100.0%", "")


def test_what_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert ran(str(tmp_path / "none.db")) == command.UNUSABLE
    assert "no ledger" in capsys.readouterr().err
    assert ran(written(tmp_path, ROWS), since="soon") == command.UNUSABLE
    assert ran(written(tmp_path, ROWS), by=("colour",)) == command.UNUSABLE


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (9_999, "9,999"), (12_345, "12.3 k"), (2.5e6, "2.5 M"), (3e9, "3.0 G")],
)
def test_tokens_are_short(value: float | None, text: str):
    assert words.tokens(value) == text


@pytest.mark.parametrize("form", ["table", "html", "json"])
def test_money_and_the_engine_s_own_counters_are_in_every_form(
    form: command.Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    ledger = written(tmp_path, ROWS)
    store = ScrapeStore(Database(make_url(f"sqlite:///{ledger}")))
    store.put([Scrape("e", NOW - 90, 0, 0, None), Scrape("e", NOW - 30, 50_000, 800, None)])
    store.close()
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nmodels: {m: {input: 1000, cached_input: 500, output: 2000}}\n")
    assert command.run(ledger, {}, "1h", (), form, NOW, prices) == command.FINE
    out = capsys.readouterr().out
    assert "EUR" in out
    assert "2.636" in out  # where what was not reported costs as if it was not cached
    assert "2.136" in out  # where it costs as if it was
    assert "counted 50,000 prompt tokens" in out
