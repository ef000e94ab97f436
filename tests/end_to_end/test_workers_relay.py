"""Two workers in front of two replicas behind HTTP, from a configuration that is loaded again."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.end_to_end.conftest import serving
from tests.end_to_end.test_workers import LONG, NAMES, Server
from tests.gateway.relay.fake_engine import MODEL, Asked, Connection, FakeEngine, fake_engine, whole
from tests.waiting import wait_until


class Fleet:
    """The server, its replicas, and the file that it was started with."""

    def __init__(self, server: Server, engines: list[FakeEngine], file: Path, config: dict[str, Any]) -> None:
        self.server = server
        self.engines = engines
        self.file = file
        self.config = config

    def chat(self, client: httpx.Client, text: str, model: str = MODEL) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": text}]}
        return client.post("/v1/chat/completions", json=body)

    def counts(self) -> list[int]:
        return [sum(each.path.endswith("completions") for each in engine.asked) for engine in self.engines]

    def write(self, text: str) -> None:
        self.file.write_text(text)
        self.server.serving.process.send_signal(signal.SIGHUP)


def answer(connection: Connection, asked: Asked) -> None:
    connection.reply(whole(0))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    file = folder / "kvgate.yaml"
    with ExitStack() as stack:
        engines = [stack.enter_context(fake_engine(answer)) for _ in range(2)]
        urls = [{"name": f"r{n}", "url": engine.url} for n, engine in enumerate(engines)]
        engine = {"kind": "openai", "name": "fleet", "replicas": urls, "models": [MODEL]}
        config = {
            "engines": [engine],
            "server": {"workers": 2, "port": 0},
            "ledger": {"url": str(folder / "ledger.db")},
        }
        file.write_text(yaml.safe_dump(config))
        it = stack.enter_context(serving_config(file))
        yield Fleet(Server(it, MODEL), engines, file, config)


def serving_config(file: Path) -> Any:
    return serving("--config", str(file))


@pytest.fixture
def clients(fleet: Fleet) -> Iterator[list[httpx.Client]]:
    found = [fleet.server.connection(name) for name in NAMES]
    yield found
    for client in found:
        client.close()


def test_a_prefix_that_one_worker_sent_to_a_replica_goes_there_from_the_other(
    fleet: Fleet, clients: list[httpx.Client]
) -> None:
    for number in range(8):
        text = f"conversation {number}: " + "as was said before, " * 500
        for other in range(
            number % 3
        ):  # so that workers which knew nothing of each other would choose differently
            fleet.chat(clients[1], f"{number} {other}: " + "something else, " * 500)
        before = fleet.counts()
        for turn in range(4):
            assert fleet.chat(clients[turn % 2], text + f"turn {turn}").status_code == 200
        changes = sorted(after - there for after, there in zip(fleet.counts(), before, strict=True))
        assert changes == [0, 4]
    assert min(fleet.counts()) > 0


def test_a_reload_reaches_all_workers_and_a_broken_file_stops_none(
    fleet: Fleet, clients: list[httpx.Client]
) -> None:
    server = fleet.server
    fleet.write(yaml.safe_dump({**fleet.config, "aliases": {"another": {"engine": "fleet", "model": MODEL}}}))
    for client in clients:
        wait_until(lambda: fleet.chat(client, "hi", "another").status_code == 200, "the alias", LONG)  # noqa: B023
    fleet.write("engines: [")
    wait_until(
        lambda: sum("THE CONFIGURATION CANNOT BE USED" in line for line in server.serving.lines) >= 2,
        "both workers say that the file is broken",
        LONG,
    )
    server.kill("worker 1")
    server.is_back("worker 1", 2)
    wait_until(lambda: server.figures().get("kvgate_workers") == 2, "both are there", LONG)
    with closing(server.connection("worker 1")) as again:
        assert fleet.chat(again, "hi", "another").status_code == 200
    assert fleet.chat(clients[0], "hi", "another").status_code == 200
    fleet.write(yaml.safe_dump(fleet.config))
    wait_until(lambda: fleet.chat(clients[0], "hi", "another").status_code == 404, "it is gone", LONG)


def test_rows_of_all_workers_are_in_one_ledger(fleet: Fleet, clients: list[httpx.Client]) -> None:
    before = fleet.server.figures()["kvgate_ledger_rows_total"]
    for number in range(20):
        assert fleet.chat(clients[number % 2], f"row {number}").status_code == 200
    wait_until(
        lambda: fleet.server.figures()["kvgate_ledger_rows_total"] >= before + 20, "rows are written", LONG
    )
    figures = fleet.server.figures()
    assert figures["kvgate_ledger_failing"] == 0
