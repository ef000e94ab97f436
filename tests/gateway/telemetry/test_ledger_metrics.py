"""What becomes of the ledger's rows, in a scrape."""

from pathlib import Path

from gateway.ledger.opening import open_writer
from tests.gateway.running_server import running
from tests.gateway.scripted_engine import MODEL
from tests.gateway.telemetry.scraped import scrape
from tests.waiting import wait_until

FATES = {"written", "dropped", "rejected", "forgotten", "pruned"}


def test_rows_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    writer = open_writer(str(tmp_path / "ledger.db"), {})
    assert writer is not None
    try:
        with running(ledger=writer) as server:
            body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}
            for _ in range(3):
                assert server.http.post("/v1/chat/completions", json=body).status_code == 200
            wait_until(lambda: writer.counts().written == 3, "rows are written")
            writer.close()
            server.http.post("/v1/chat/completions", json=body)
            wait_until(lambda: writer.counts().dropped == 1, "a row is dropped")
            seen = scrape(server.http)
    finally:
        writer.close()
    rows = seen.labels("kvgate_ledger_rows_total", "fate")
    assert rows == dict.fromkeys(FATES, 0) | {"written": 3, "dropped": 1}
    assert seen.value("kvgate_ledger_rows_waiting") == seen.value("kvgate_ledger_failing") == 0


def test_where_no_ledger_is_kept_nothing_is_said_of_it() -> None:
    with running() as server:
        assert not any("ledger" in name for name in scrape(server.http).families)
