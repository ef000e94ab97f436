"""Two workers over one engine, all in processes of their own: `kvgate serve --workers 2`."""

import os
import re
import signal
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.conftest import Serving, serving
from tests.end_to_end.test_canon import TEMPLATE, Client, cached
from tests.waiting import wait_until

LONG = 120.0  # a loaded machine takes its time; a hanging one fails
NAMES = ("worker 0", "worker 1")


@dataclass
class Server:
    """One running server."""

    serving: Serving
    model: str = ""

    @property
    def url(self) -> str:
        return self.serving.url.removesuffix("/v1")

    def pids(self, name: str) -> list[int]:
        found = [re.search(r' started process="?([^"]+?)"? pid=(\d+)', line) for line in self.serving.lines]
        return [int(match[2]) for match in found if match and match[1] == name]

    def kill(self, name: str) -> None:
        os.kill(self.pids(name)[-1], signal.SIGKILL)

    def is_back(self, name: str, times: int) -> None:
        wait_until(lambda: len(self.pids(name)) >= times, f"{name} started {times} times", LONG)

    def who_answered(self, request: str) -> str:
        def line() -> str | None:
            return next((each for each in self.serving.lines if f"id={request} " in each), None)

        wait_until(line, "the request's line", LONG)
        match = re.search(r'process="([^"]+)"', line() or "")
        assert match is not None
        return match[1]

    def connection(self, name: str) -> httpx.Client:
        """A client whose connection goes to one worker, and stays there."""
        for _ in range(200):
            client = httpx.Client(base_url=self.url, timeout=LONG)
            request = uuid.uuid4().hex
            try:
                client.post("/v1/completions", json={}, headers={"x-request-id": request}).read()
                if self.who_answered(request) == name:
                    return client
            except httpx.HTTPError:
                pass  # it led to one that was just killed
            client.close()
        raise AssertionError(f"no connection led to {name}")

    def complete(self, client: httpx.Client, prompt: str, **fields: Any) -> dict[str, Any]:
        answer = client.post("/v1/completions", json=self.body(prompt, **fields))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def body(self, prompt: str, **fields: Any) -> dict[str, Any]:
        return {"model": self.model, "prompt": prompt, "max_tokens": 2, "ignore_eos": True, **fields}

    def figures(self, client: httpx.Client | None = None) -> dict[str, float]:
        """Every sample's sum over its labels."""
        answer = (client or httpx).get(f"{self.url}/metrics", timeout=LONG)
        assert answer.status_code == 200, answer.text
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0) + sample.value
        return found

    def comes_to(self, name: str, value: float) -> None:
        def there() -> bool:
            try:
                return self.figures()[name] == value
            except (AssertionError, httpx.HTTPError, KeyError):
                return False

        wait_until(there, f"{name} is {value}", LONG)


class Stream:
    """A request that runs on a thread of its own until its stream ends, however."""

    def __init__(self, server: Server, client: httpx.Client, prompt: str, tokens: int) -> None:
        self._body = server.body(
            prompt, max_tokens=tokens, stream=True, stream_options={"include_usage": True}
        )
        self._client = client
        self.lines: list[str] = []
        self.began = threading.Event()
        self.error: Exception | None = None
        self._leave = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self._client.stream("POST", "/v1/completions", json=self._body) as answer:
                for line in answer.iter_lines():
                    self.lines.append(line)
                    self.began.set()
                    if self._leave.is_set():
                        return
        except httpx.HTTPError as error:
            self.error = error
        finally:
            self.began.set()

    def leave(self) -> None:
        self._leave.set()
        self.thread.join(LONG)

    @property
    def complete(self) -> bool:
        self.thread.join(LONG)
        return self.error is None and "data: [DONE]" in self.lines


@pytest.fixture(scope="module")
def server(tiny_model: Callable[[str], Path]) -> Iterator[Server]:
    with serving(
        *("--model", str(tiny_model("qwen3")), "--chat-template", str(TEMPLATE)),
        *("--canon-policy", "full", "--workers", "2", "--kv-cache-gib", "0.2"),
    ) as it:
        found = Server(it)
        found.model = it.client().models.list().data[0].id
        yield found


@pytest.fixture
def clients(server: Server) -> Iterator[list[httpx.Client]]:
    """A connection to each worker."""
    found = [server.connection(name) for name in NAMES]
    yield found
    for client in found:
        client.close()


def test_a_prefix_that_one_worker_computed_is_reused_by_the_other(
    server: Server, clients: list[httpx.Client]
) -> None:
    prompt = "In the beginning there was one worker. " * 5
    first, second = (server.complete(client, prompt)["usage"] for client in clients)
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] >= first["prompt_tokens"] - 16


def test_a_conversation_goes_on_at_another_worker_as_if_it_was_the_same(
    server: Server, clients: list[httpx.Client]
) -> None:
    sdks = [
        openai.OpenAI(base_url=server.serving.url, api_key="none", max_retries=0, http_client=client)
        for client in clients
    ]
    client = Client(sdks[0], "a shop with two doors")
    before = client.ask("How many bells are left?", "10:11:12")
    for n, time in enumerate(("10:15:40", "10:15:40", "10:21:00")):
        client._sdk = sdks[(n + 1) % 2]
        usage = client.ask(f"And how many of kind {n}?", time)
        assert cached(usage) >= before.prompt_tokens - 16
        before = usage


def test_any_worker_tells_what_all_have_counted(server: Server, clients: list[httpx.Client]) -> None:
    before = server.figures(clients[0])["kvgate_requests_total"]
    for number in range(5):
        server.complete(clients[number % 2], f"count {number}")
    for client in clients:
        wait_until(lambda: server.figures(client)["kvgate_requests_total"] == before + 5, "all are told")  # noqa: B023
        assert server.figures(client)["kvgate_engine_up"] == 1
        assert server.figures(client)["kvgate_workers"] == 2


def test_a_client_that_leaves_is_gone_from_the_engine(server: Server, clients: list[httpx.Client]) -> None:
    stream = Stream(server, clients[0], "never ending", 1900)
    stream.began.wait(LONG)
    assert server.figures()["kvgate_engine_running"] == 1
    stream.leave()
    server.comes_to("kvgate_engine_running", 0)
    assert "data: [DONE]" not in stream.lines


def test_a_killed_worker_takes_its_own_requests_with_it_and_no_others(
    server: Server, clients: list[httpx.Client]
) -> None:
    before = server.figures()
    lost = Stream(server, clients[0], "lost", 1900)
    kept = Stream(server, clients[1], "kept", 300)
    for stream in (lost, kept):
        stream.began.wait(LONG)
    server.kill("worker 0")
    assert kept.complete
    assert not lost.complete
    server.comes_to("kvgate_engine_running", 0)
    server.is_back("worker 0", 2)
    with closing(server.connection("worker 0")) as again:
        server.complete(again, "again")
        after = server.figures(again)
    assert after["kvgate_worker_starts_total"] == before["kvgate_worker_starts_total"] + 1
    assert after["kvgate_requests_total"] >= before["kvgate_requests_total"] + 2  # the kept one, and the last


def test_requests_go_on_without_what_workers_share_and_find_it_again(
    server: Server, clients: list[httpx.Client]
) -> None:
    before = server.figures()["kvgate_requests_total"]
    server.kill("state")
    for number in range(4):
        server.complete(clients[number % 2], f"without {number}")
    server.is_back("state", 2)
    server.comes_to("kvgate_requests_total", before + 4)
    test_a_conversation_goes_on_at_another_worker_as_if_it_was_the_same(server, clients)


def test_while_the_engine_is_away_requests_are_told_so(server: Server, clients: list[httpx.Client]) -> None:
    stream = Stream(server, clients[0], "cut", 1900)
    stream.began.wait(LONG)
    server.kill("engine")
    assert not stream.complete
    assert any("engine" in line and "error" in line for line in stream.lines)
    refused = clients[1].post("/v1/completions", json=server.body("refused"))
    assert refused.status_code in (500, 503)
    wait_until(lambda: clients[0].get("/ready").status_code == 503, "it is not ready", LONG)
    wait_until(lambda: clients[0].get("/ready").status_code == 200, "it is ready again", LONG)
    for client in clients:
        wait_until(lambda: client.get("/ready").status_code == 200, "so is the other", LONG)  # noqa: B023
        server.complete(client, "back")


def test_a_signal_lets_streams_end_at_every_worker_and_nothing_is_left(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.db"
    arguments = ("--model", str(tiny_model("qwen3")), "--workers", "2", "--ledger", str(ledger))
    with serving(*arguments, "--kv-cache-gib", "0.2") as it:
        server = Server(it)
        server.model = it.client().models.list().data[0].id
        clients = [server.connection(name) for name in NAMES]
        streams = [Stream(server, client, f"to the end {n}", 200) for n, client in enumerate(clients)]
        for stream in streams:
            stream.began.wait(LONG)
        it.process.terminate()
        assert [stream.complete for stream in streams] == [True, True]
        assert it.process.wait(LONG) == 0
        pids = [server.pids(name)[0] for name in ("state", "engine", *NAMES)]
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        for client in clients:
            client.close()
    with sqlite3.connect(ledger) as rows:
        (count,) = rows.execute("SELECT count(*) FROM requests WHERE finish = 'length'").fetchone()
    assert count == 2
