"""docs/observability.md names what is really there."""

import re
from pathlib import Path

from engine_adapters.base import Finished, ReuseReport, TextDelta, Usage
from tests.gateway.running_server import running
from tests.gateway.scripted_engine import MODEL, events
from tests.gateway.telemetry.scraped import scrape

REPORT = ReuseReport(None, 16, {"device": 16}, "scripted", "reported")
DOCS = Path(__file__).parents[3] / "docs" / "observability.md"


def test_every_metric_in_a_scrape_is_in_the_docs() -> None:
    text = DOCS.read_text("utf-8")
    with running() as server:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}
        assert server.http.post("/v1/chat/completions", json=body).status_code == 200
        names = {name for name in scrape(server.http).families if "canon_lost" not in name}  # written as `..`
    assert names
    assert [name for name in names if not re.search(rf"\b{name}(_total)?\b", text)] == []


def test_every_metric_in_the_docs_queries_is_in_a_scrape() -> None:
    used = set(re.findall(r"\b((?:kvgate|gen_ai)_[a-z_]+)(?:\{[^}]*\})?\[", DOCS.read_text("utf-8")))
    with running() as server:
        server.engine.script = events(TextDelta(0, "a"), Finished(0, "stop"), Usage(48, 2, REPORT))
        body = {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "Current time: 2025-03-01 12:30:05"},
                {"role": "user", "content": "a"},
            ],
        }
        assert server.http.post("/v1/chat/completions", json=body).status_code == 200
        there = {sample.name for sample in scrape(server.http).samples}
    assert used
    assert used <= there
