"""An engine in a process of its own, to be killed and stopped: `python -m` this, with a port and a mode.

Modes: `well` answers; `silent` takes connections and answers nothing, not even about its health; `hung` answers about
its health only; `stuck` stops behind a stream's first word; `drains` says 503 to what is new, and ends what runs.
`user` in the body is how many words a stream has, one each 20 ms.
"""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.ports import free_port

MODEL = "fake-1"


def event(payload: object) -> bytes:
    text = b"data: " + (payload if isinstance(payload, bytes) else json.dumps(payload).encode()) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(text), text)


class Engine:
    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.usage = {
            "prompt_tokens": 8,
            "completion_tokens": 2,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 4},
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while first := (await reader.readline()).strip():
                size = 0
                while header := (await reader.readline()).strip():
                    name, _, value = header.lower().partition(b":")
                    size = int(value) if name == b"content-length" else size
                body = json.loads(await reader.readexactly(size)) if size else {}
                if self.mode == "silent" or (self.mode == "hung" and first.startswith(b"POST")):
                    await asyncio.Event().wait()
                await self.answer(first, body, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other side left
        finally:
            writer.close()

    async def answer(self, first: bytes, body: dict, writer: asyncio.StreamWriter) -> None:
        if self.mode == "drains":
            self.whole(writer, b"503 Service Unavailable", {"error": {"message": "draining"}})
        elif first.startswith(b"GET"):
            self.whole(writer, b"200 OK", {"data": [{"id": MODEL}]})
        elif body.get("stream"):
            await self.stream(int(body.get("user", "2")), writer)
        else:
            await asyncio.sleep(0.02 * int(body.get("user", "0")))
            message = {"role": "assistant", "content": "word"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.whole(writer, b"200 OK", {"id": "c", "choices": [choice], "usage": self.usage})
        await writer.drain()

    def whole(self, writer: asyncio.StreamWriter, status: bytes, body: object) -> None:
        text = json.dumps(body).encode()
        writer.write(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (status, len(text), text)
        )

    async def stream(self, words: int, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(words):
            choice = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
            writer.write(event({"id": "c", "choices": [choice]}))
            await writer.drain()
            if self.mode == "stuck":
                await asyncio.Event().wait()
            await asyncio.sleep(0.02)
        writer.write(event({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        writer.write(event({"id": "c", "choices": [], "usage": self.usage}))
        writer.write(event(b"[DONE]") + b"0\r\n\r\n")


async def main(port: int, mode: str) -> None:
    engine = Engine(mode)

    def drain() -> None:
        engine.mode = "drains"

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain)
    server = await asyncio.start_server(engine.serve, "127.0.0.1", port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


@dataclass(slots=True)
class EngineProcess:
    """One that a test has started, and may start again on the same port."""

    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, mode: str = "well") -> None:
        self.kill()
        command = [sys.executable, "-m", "tests.gateway.replicas.engine_process", str(self.port), mode]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextmanager
def engine_processes(*modes: str | None) -> Iterator[list[EngineProcess]]:
    """One for each mode; None: it is not started."""
    engines = [EngineProcess() for _ in modes]
    try:
        for engine, mode in zip(engines, modes, strict=True):
            if mode is not None:
                engine.start(mode)
        yield engines
    finally:
        for engine in engines:
            engine.kill()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
