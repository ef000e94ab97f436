"""The life of a serving process: up before the model, drained on a signal, honest exit codes."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.gateway.scripted_engine import MODEL
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"

HTTP = httpx.Client(timeout=PATIENCE_S, headers={"connection": "close"})
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.gateway.served_process", *arguments]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children.append(child)
        return child

    yield run
    for child in children:
        child.kill()
        child.wait()


@pytest.fixture
def port() -> int:
    return free_port()


def ready(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    return json.loads(child.stdout.readline())


def stop(child: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    child.send_signal(number)
    _, errors = child.communicate(timeout=PATIENCE_S)
    return child.returncode, errors


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **fields}


def test_ready_is_one_json_line_on_stdout_and_progress_is_on_stderr(start: Start) -> None:
    child = start("0")
    line = ready(child)
    assert line["ready"] is True
    assert line["model"] == MODEL
    assert HTTP.post(line["base_url"] + "/chat/completions", json=body()).status_code == 200
    status, errors = stop(child)
    assert status == 0
    assert "listening on" in errors
    assert "ready on" in errors
    assert "engine closed" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_health_answers_while_loading_and_a_signal_ends_it(start: Start, port: int, number: int) -> None:
    child = start(str(port), "hangs")
    wait_until(lambda: answers(port), "the server is up")
    assert HTTP.get(f"http://127.0.0.1:{port}/ready").status_code == 503
    refused = HTTP.post(f"http://127.0.0.1:{port}{CHAT}", json=body())
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    status, _ = stop(child, number)
    assert status == 0


def answers(port: int) -> bool:
    try:
        return HTTP.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def test_a_model_that_cannot_be_loaded_ends_the_process_and_says_why(start: Start) -> None:
    child = start("0", "fails")
    output, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 1
    assert "no such model" in errors
    assert "Traceback" not in errors
    assert output == ""


def test_a_taken_port_is_said_before_anything_is_loaded(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        child = start(str(taken.getsockname()[1]))
        _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 1
    assert "in use" in errors
    assert "loading" not in errors


def test_a_running_stream_finishes_within_the_grace_period(start: Start) -> None:
    child = start("0", "works", "20")
    base_url = ready(child)["base_url"]
    with HTTP.stream("POST", base_url + "/chat/completions", json=body(stream=True, seed=1)) as response:
        lines = response.iter_lines()
        assert "wait" in next(line for line in lines if "wait" in line)
        child.send_signal(signal.SIGTERM)
        assert "data: [DONE]" in list(lines)
    status, errors = stop(child)
    assert status == 0
    assert "engine closed" in errors


def test_signals_that_come_until_it_is_gone_are_no_crash(start: Start) -> None:
    child = start("0", "works", "20")
    ready(child)
    child.send_signal(signal.SIGTERM)
    assert child.stderr is not None
    assert any("all requests have ended" in line for line in child.stderr)
    deadline = time.monotonic() + PATIENCE_S
    while child.poll() is None and time.monotonic() < deadline:
        child.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert child.returncode == 0


def test_a_stream_that_outlives_the_grace_period_ends_with_an_error_event(start: Start) -> None:
    child = start("0", "works", "0.3")
    base_url = ready(child)["base_url"]
    seen: list[str] = []
    with HTTP.stream("POST", base_url + "/chat/completions", json=body(stream=True, seed=60)) as response:
        lines = response.iter_lines()
        next(line for line in lines if "wait" in line)
        child.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012  the stream breaks somewhere in the loop
            for line in lines:
                seen.append(line)  # noqa: PERF402  what came before the break counts
    assert any('"code":"engine_not_ready"' in line for line in seen)
    assert "data: [DONE]" not in seen
    assert child.wait(timeout=PATIENCE_S) == 0


def test_after_a_signal_it_is_not_ready_and_still_serves_for_the_delay(start: Start) -> None:
    child = start("0", "works", "20", "30")
    base_url = ready(child)["base_url"]
    root = base_url.removesuffix("/v1")
    with httpx.Client(timeout=PATIENCE_S) as kept:
        assert kept.get(f"{root}/ready").headers.get("connection") != "close"
        child.send_signal(signal.SIGTERM)
        wait_until(lambda: HTTP.get(f"{root}/ready").status_code == 503, "it is not ready")
        answer = kept.post(base_url + "/chat/completions", json=body())
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"  # the next one finds another server
        assert HTTP.get(f"{root}/health").status_code == 200
    status, errors = stop(child)
    assert status == 0
    assert "draining" in errors
    assert "second signal" in errors
    assert "Traceback" not in errors


def test_a_second_signal_ends_what_runs_with_an_error_event(start: Start) -> None:
    child = start("0", "works", "600")
    base_url = ready(child)["base_url"]
    seen: list[str] = []
    with HTTP.stream("POST", base_url + "/chat/completions", json=body(stream=True, seed=500)) as response:
        lines = response.iter_lines()
        next(line for line in lines if "wait" in line)
        child.send_signal(signal.SIGTERM)
        wait_until(
            lambda: not answers(int(base_url.rsplit(":", 1)[1].split("/")[0])), "the listener is closed"
        )
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012  the stream breaks somewhere in the loop
            for line in lines:
                seen.append(line)  # noqa: PERF402  what came before the break counts
    assert any('"code":"engine_not_ready"' in line for line in seen)
    assert child.wait(timeout=PATIENCE_S) == 0


def test_a_body_that_is_on_its_way_at_the_signal_is_answered(start: Start) -> None:
    child = start("0", "works", "20")
    base_url = ready(child)["base_url"]
    port = int(base_url.rsplit(":", 1)[1].split("/")[0])
    sent = json.dumps(body()).encode()
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(
            b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(sent))
        )
        slow.sendall(sent[:10])
        wait_until(lambda: answers(port), "the head has arrived")
        child.send_signal(signal.SIGTERM)
        wait_until(lambda: not answers(port), "the listener is closed")
        slow.sendall(sent[10:])
        assert slow.recv(65536).startswith(b"HTTP/1.1 200 OK")
    assert child.wait(timeout=PATIENCE_S) == 0
