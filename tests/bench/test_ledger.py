"""The load of the ledger's bench is answered and paced, and its rows are such as a ledger takes."""

from pathlib import Path
from random import Random

from bench.ledger import _bounded, _fill, _report, _some_row
from bench.ledger_load import engine, send
from gateway.ledger.encoding import encoded


async def test_every_request_is_answered_and_none_comes_early():
    async with engine() as port:
        load = await send(port, requests=60, per_second=300, clients=4)
    assert (load.requests, load.failed) == (60, 0)
    assert load.seconds >= 59 / 300


def test_rows_are_such_as_a_ledger_takes_and_are_reported_on(tmp_path: Path):
    assert encoded(_some_row(7, 100, 1e9, Random(1)))
    ledger = tmp_path / "ledger.db"
    assert _fill(ledger, 700, lambda _: None) > 0
    wall, cpu, peak = _report(ledger)
    assert wall > 0
    assert cpu > 0
    assert peak > 10e6


def test_a_full_queue_keeps_its_bound_and_counts_what_it_drops(tmp_path: Path):
    found = _bounded(tmp_path / "ledger.db")
    assert found.kept + found.dropped == found.put
    assert found.dropped > 0
