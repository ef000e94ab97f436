"""An engine on a raw socket: tests say every byte that it sends, and when it goes."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import PATIENCE_S

MODEL = "fake-1"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]  # names in lower case
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


Script = Callable[["Connection", Asked], None]


class Connection:
    """What a script writes to."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw

    def send(self, data: bytes) -> None:
        self._raw.sendall(data)

    def head(self, status: str = "200 OK", kind: str = "application/json", *more: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", *more, "", ""]
        self.send("\r\n".join(lines).encode())

    def stream(self) -> None:
        """Begin a stream of server-sent events."""
        self.head("200 OK", "text/event-stream", "transfer-encoding: chunked")

    def chunk(self, data: bytes) -> None:
        """One piece of a stream, in a packet of its own."""
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        """End a stream as HTTP has it."""
        self.send(b"0\r\n\r\n")

    def reply(self, body: bytes, status: str = "200 OK", *more: str, kind: str = "application/json") -> None:
        self.head(status, kind, f"content-length: {len(body)}", *more)
        self.send(body)

    def reset(self) -> None:
        """Go as a process does that was killed."""
        self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._raw.close()

    def wait_for_its_end(self, seconds: float = PATIENCE_S) -> bool:
        """Whether the other side closes the connection."""
        self._raw.settimeout(seconds)
        try:
            return self._raw.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


@dataclass(slots=True)
class FakeEngine:
    url: str
    script: Script | None = None
    asked: list[Asked] = field(default_factory=list)
    models: list[str] = field(default_factory=lambda: [MODEL])


def event(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def content(text: str) -> bytes:
    return event({"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


FINISH = event({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
DONE = b"data: [DONE]\n\n"


def usage(cached: int | None, prompt: int = 20) -> dict[str, Any]:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": 2, "total_tokens": prompt + 2, **details}


def usage_event(cached: int | None) -> bytes:
    return event({"id": "c", "choices": [], "usage": usage(cached)})


def whole(cached: int | None, text: str = "Hello") -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"id": "c", "choices": [choice], "usage": usage(cached)}).encode()


@contextmanager
def fake_engine(script: Script | None = None) -> Iterator[FakeEngine]:
    """Listens on a loopback port for the block; each connection has a thread.

    Only the thread that reads a socket closes it. Who else did would give its number away, and what the next test opens
    under that number would be read by this one's threads, and answered by its script.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    engine = FakeEngine(f"http://127.0.0.1:{listener.getsockname()[1]}", script)
    connections: list[socket.socket] = []

    def accept() -> None:
        with listener:
            while True:
                try:
                    raw, _ = listener.accept()
                except OSError:
                    return
                connections.append(raw)
                threading.Thread(target=_serve, args=(raw, engine), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield engine
    finally:
        _end(listener)
        accepting.join(PATIENCE_S)
        for raw in connections:
            _end(raw)


def _end(raw: socket.socket) -> None:
    """Whoever waits for something from it goes on."""
    with suppress(OSError):  # the other side, or a script, ended it before
        raw.shutdown(socket.SHUT_RDWR)


def _list_models(engine: FakeEngine) -> Script:
    listed = json.dumps({"data": [{"id": name} for name in engine.models]}).encode()
    return lambda connection, _: connection.reply(listed)


def _serve(raw: socket.socket, engine: FakeEngine) -> None:
    with raw:
        while (asked := _read(raw)) is not None:
            listing = asked.path.endswith("/models")
            if not listing:
                engine.asked.append(asked)
            script = _list_models(engine) if listing else engine.script
            assert script is not None
            try:
                script(Connection(raw), asked)
            except OSError:
                return  # the other side left, or the script did
            if raw.fileno() < 0:
                return


def hold(go_on: threading.Event) -> Callable[[Connection, Asked], None]:
    """A script: a stream that goes on when it is told to."""

    def script(connection: Connection, _: Asked) -> None:
        connection.stream()
        connection.chunk(content("first"))
        go_on.wait(PATIENCE_S)
        connection.chunk(content("last") + FINISH + usage_event(0) + DONE)
        connection.end()

    return script


def _read(raw: socket.socket) -> Asked | None:
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            piece = raw.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", "0")):
            piece = raw.recv(65536)
            if not piece:
                return None
            body += piece
    except OSError:
        return None
    return Asked(first.split(" ")[1], headers, body)
