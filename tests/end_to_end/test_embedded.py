"""The real engine behind a real server: steps block nobody, and clients that go away leave nothing behind."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from canon.tokens import PromptTokenizer
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.model_runner import Segment
from gateway.served import Backend
from tests.gateway.running_server import Running, running
from tests.waiting import PATIENCE_S, wait_until

TOKENS = 1500  # far more than are generated before the client goes


class Steps:
    """Counts the engine's steps, and holds the one of number `held` until `gate` is opened."""

    def __init__(self, adapter: EmbeddedAdapter, held: int = 1) -> None:
        self.taken = 0
        self.held = held
        self.gate = threading.Event()
        self._forward = adapter.runner.forward
        adapter.runner.forward = self._step  # type: ignore[method-assign]

    def _step(self, segments: Sequence[Segment]) -> torch.Tensor:
        self.taken += 1
        assert self.taken < self.held or self.gate.wait(2 * PATIENCE_S)
        return self._forward(segments)


@pytest.fixture
def adapter(tiny_model: Callable[[str], Path]) -> Iterator[EmbeddedAdapter]:
    adapter = EmbeddedAdapter.load(
        EmbeddedConfig(model=str(tiny_model("llama")), kv_bytes=16 << 20), lambda _: None
    )
    yield adapter
    adapter.engine.stop()


@pytest.fixture
def server(adapter: EmbeddedAdapter) -> Iterator[Running]:
    with running() as it:
        it.served.put(Backend(adapter, PromptTokenizer.from_folder(adapter.folder.tokenizer_path)))
        yield it


def ask(server: Running, **options: object) -> socket.socket:
    messages = [{"role": "user", "content": "Tell me of the sea, and of the ships on it."}]
    body = {"model": server.served.current().capabilities().model, "messages": messages, "max_tokens": TOKENS}
    raw = json.dumps(body | {"ignore_eos": True} | options).encode()
    client = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
    client.sendall(head.encode() + raw)
    return client


def leave(client: socket.socket, adapter: EmbeddedAdapter, steps: Steps) -> None:
    """While a step is held; it goes on once the engine was told, and then nothing of the request is left."""
    client.shutdown(socket.SHUT_RDWR)  # sends its end, whoever else in this process has the descriptor
    client.close()
    wait_until(lambda: not adapter.engine._commands.empty(), "the cancellation has come")
    steps.gate.set()
    wait_until(lambda: adapter.engine.counters()["cancelled"] == 1, "the engine is told")
    wait_until(lambda: adapter.cache.stats().leases == 0, "the lease is released")
    adapter.cache.check_integrity()
    stats = adapter.cache.stats()
    assert stats.free + stats.cached == stats.total


def test_while_a_step_computes_everything_else_is_answered(server: Running, adapter: EmbeddedAdapter) -> None:
    steps = Steps(adapter)
    client = ask(server, max_tokens=1)
    wait_until(lambda: steps.taken == 1, "its step runs")
    assert server.http.get("/ready").status_code == 200
    assert server.http.get("/v1/models").status_code == 200
    wrong = {"model": server.served.current().capabilities().model, "messages": []}
    assert server.http.post("/v1/chat/completions", json=wrong).status_code == 400
    assert steps.taken == 1
    steps.gate.set()
    assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    client.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_who_leaves_before_the_first_byte_leaves_the_batch_within_a_step(
    server: Running, adapter: EmbeddedAdapter, stream: bool, n: int
) -> None:
    steps = Steps(adapter)
    client = ask(server, stream=stream, n=n)
    wait_until(lambda: steps.taken == 1, "its first step runs")
    leave(client, adapter, steps)
    assert steps.taken == 1


@pytest.mark.parametrize("n", [1, 3])
def test_who_leaves_in_the_middle_of_a_stream_frees_the_engine(
    server: Running, adapter: EmbeddedAdapter, n: int
) -> None:
    steps = Steps(adapter, held=20)
    client = ask(server, stream=True, n=n)
    received = b""
    while received.count(b"data: ") < 5:
        received += client.recv(65536)
    wait_until(lambda: steps.taken == 20, "it is in the middle")
    leave(client, adapter, steps)
    assert steps.taken == 20


def test_who_leaves_an_answer_that_is_not_streamed_frees_the_engine(
    server: Running, adapter: EmbeddedAdapter
) -> None:
    steps = Steps(adapter, held=5)
    client = ask(server)
    wait_until(lambda: steps.taken == 5, "it decodes")
    leave(client, adapter, steps)
    assert steps.taken == 5
