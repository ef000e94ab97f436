"""An engine's side of KV events: publishes over ZeroMQ, and gives out again what it has kept, as vLLM does."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq

from tests.waiting import PATIENCE_S

_END = (-1).to_bytes(8, "big", signed=True)


class Publisher:
    """Blocks are named by numbers. Used from one thread; another one answers who missed something."""

    def __init__(self, events: str = "tcp://127.0.0.1:*", replay: bool = True) -> None:
        self._context = zmq.Context()
        self._events = self._context.socket(zmq.XPUB)
        self._events.setsockopt(zmq.XPUB_VERBOSE, 1)  # who comes back is told of, too
        self._events.bind(events)
        self.port = _port(self._events) if events.startswith("tcp") else 0
        self.kept: dict[int, bytes] = {}
        self.seq = 0
        self.replays = 0
        self._ending = threading.Event()
        self.replay_port: int | None = None
        self._thread: threading.Thread | None = None
        if replay:
            socket = self._context.socket(zmq.ROUTER)
            socket.bind("tcp://127.0.0.1:*")
            self.replay_port = _port(socket)
            self._thread = threading.Thread(target=self._answer, args=(socket,))
            self._thread.start()

    def wait_for_a_listener(self) -> None:
        """The next one; that one leaves is told as well."""
        subscribed = False
        while not subscribed:
            assert self._events.poll(PATIENCE_S * 1000), "nobody subscribes"
            subscribed = self._events.recv().startswith(b"\x01")

    def publish(self, *events: Any, keep: bool = True, lose: bool = False) -> None:
        """`lose`: it never arrives."""
        self.send(msgspec.msgpack.encode([time.time(), list(events), 0]), keep=keep, lose=lose)

    def send(self, payload: bytes, *, keep: bool = True, lose: bool = False) -> None:
        seq, self.seq = self.seq, self.seq + 1
        if keep:
            self.kept[seq] = payload
        if not lose:
            self._events.send_multipart([b"kv", seq.to_bytes(8, "big"), payload])

    def raw(self, *frames: bytes) -> None:
        self._events.send_multipart(list(frames))

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._context.destroy(linger=0)

    def _answer(self, socket: zmq.Socket[bytes]) -> None:
        while not self._ending.is_set():
            if not socket.poll(20):
                continue
            client, _, start = socket.recv_multipart()
            self.replays += 1
            for seq, payload in sorted(self.kept.items()):
                if seq >= int.from_bytes(start, "big"):
                    socket.send_multipart([client, b"", b"kv", seq.to_bytes(8, "big"), payload])
            socket.send_multipart([client, b"", b"", _END, b""])


def _port(socket: zmq.Socket[bytes]) -> int:
    return int(socket.getsockopt(zmq.LAST_ENDPOINT).decode().rpartition(":")[2])


@contextmanager
def publisher(**options: Any) -> Iterator[Publisher]:
    made = Publisher(**options)
    try:
        yield made
    finally:
        made.close()


def stored(
    names: Sequence[int],
    tokens: Sequence[int],
    parent: int | None = None,
    *,
    as_list: bool = False,
    **more: Any,
) -> Any:
    """Blocks of equal size."""
    fields = {
        "block_hashes": list(names),
        "parent_block_hash": parent,
        "token_ids": [int(token) for token in tokens],
        "block_size": len(tokens) // max(1, len(names)),
        "lora_id": None,
        "medium": "GPU",
        **more,
    }
    return ["BlockStored", *fields.values()] if as_list else {"type": "BlockStored", **fields}


def removed(names: Sequence[int], *, as_list: bool = False) -> Any:
    if as_list:
        return ["BlockRemoved", list(names), "GPU"]
    return {"type": "BlockRemoved", "block_hashes": list(names), "medium": "GPU"}


CLEARED = {"type": "AllBlocksCleared"}
