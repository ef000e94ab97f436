"""A serving process keeps what its engines count, from its start on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gateway.ledger import open_database
from gateway.ledger.scrapes import Scrape, ScrapeStore
from gateway.served import Backend, Served
from tests.gateway.reports.doctor.lying_engine import LyingEngine, served
from tests.gateway.scripted_engine import BytePrompts, ScriptedEngine
from tests.waiting import wait_until


def test_all_engines_that_are_there_are_asked():
    engine = ScriptedEngine()
    both = Served(Backend(engine, BytePrompts(), "mine"))
    assert both.counters() == {"mine": engine.counters}
    both.withdraw("it ends")
    assert both.counters() == {}


def test_a_server_with_a_ledger_keeps_scrapes_of_its_engines(tmp_path: Path):
    ledger = str(tmp_path / "ledger.db")
    counters = {"vllm:prefix_cache_queries_total": 90, "vllm:prefix_cache_hits_total": 40}
    with served(LyingEngine(counters=counters)) as url:
        config = tmp_path / "kvgate.json"
        engine = {"kind": "vllm", "name": "e", "url": url, "models": ["m"]}
        config.write_text(json.dumps({"engines": [engine], "ledger": {"url": ledger}}))
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", "0", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ)
        try:
            assert process.stdout is not None
            assert any(b"base_url" in line for line in process.stdout)
            kept = _scrapes(ledger)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert (kept[0].engine, kept[0].prompt, kept[0].reused, kept[0].recomputed) == ("e", 90, 40, 50)


def _scrapes(ledger: str) -> list[Scrape]:
    store = ScrapeStore(open_database(ledger, {}))
    wait_until(lambda: store.between(None, time.time() + 1), "a scrape is kept")
    found = store.between(None, time.time() + 1)
    store.close()
    return found
