"""Bodies captured by a real server over a scripted engine."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from gateway.ledger.capture import BodyCapture, CaptureCounts, CaptureSettings
from gateway.process.listener import listen, url_of
from gateway.process.server import server_config
from gateway.served import Backend, Served
from gateway.surface.app import create_app_over
from tests.gateway.scripted_engine import BytePrompts, ScriptedEngine


@contextmanager
def serving(settings: CaptureSettings, capture: BodyCapture | None = None) -> Iterator[httpx.Client]:
    """A gateway that captures; what it captured is written when this ends."""
    capture = (capture or BodyCapture(settings)).start()
    served = Served(Backend(ScriptedEngine(), BytePrompts()))
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(create_app_over(served, capture=capture), grace_s=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        with httpx.Client(base_url=url_of(listener), timeout=60) as http:
            yield http
    finally:
        server.should_exit = True
        thread.join()
        capture.close()


def captured(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


def chat(http: httpx.Client, **fields: Any) -> httpx.Response:
    model = http.get("/v1/models").json()["data"][0]["id"]
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **fields}
    return http.post("/v1/chat/completions", json=body)


@pytest.mark.parametrize("stream", [False, True])
def test_request_and_answer_are_kept_with_id_and_model(tmp_path: Path, stream: bool) -> None:
    with serving(CaptureSettings(tmp_path / "bodies", 1.0)) as http:
        answer = chat(http, stream=stream)
        assert answer.status_code == 200
    (line,) = captured(tmp_path / "bodies")
    assert line["request"]["messages"] == [{"role": "user", "content": "hello"}]
    assert line["id"] == answer.headers["x-request-id"]
    assert line["model"] == line["request"]["model"]
    assert line["response"]["choices"][0]["message"]["content"]


def test_a_refused_request_is_kept_without_an_answer(tmp_path: Path) -> None:
    with serving(CaptureSettings(tmp_path / "bodies", 1.0)) as http:
        assert chat(http, temperature=99).status_code == 400
    (line,) = captured(tmp_path / "bodies")
    assert line["request"]["temperature"] == 99
    assert "response" not in line


def test_a_body_that_is_too_large_is_counted_and_answered(tmp_path: Path) -> None:
    settings = CaptureSettings(tmp_path / "bodies", 1.0, body_bytes=50)
    capture = BodyCapture(settings)
    with serving(settings, capture) as http:
        assert chat(http).status_code == 200
    assert captured(tmp_path / "bodies") == []
    assert capture.counts() == CaptureCounts(kept=0, dropped=1, failed=0)


def test_outside_the_share_nothing_is_kept(tmp_path: Path) -> None:
    with serving(CaptureSettings(tmp_path / "bodies", 0.0)) as http:
        assert chat(http).status_code == 200
    assert captured(tmp_path / "bodies") == []


def test_other_paths_are_not_captured(tmp_path: Path) -> None:
    with serving(CaptureSettings(tmp_path / "bodies", 1.0)) as http:
        assert http.get("/health").status_code == 200
        assert http.post("/v1/models", json={"a": 1}).status_code == 405
    assert captured(tmp_path / "bodies") == []
