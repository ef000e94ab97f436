"""The child's side: runs `sglang.Engine` and serves one socket. Stands alone: the interpreter it runs in is SGLang's.

    python worker.py FD

Frames both ways are 4 bytes of length, big-endian, and a JSON object of UTF-8. The first frame that comes holds the
engine's arguments; the first that goes says what the engine is. Then each request has an `id`, and every answer to
it carries that: events of a stream, and one last frame with `done` or `error`.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

MAX_FRAME = 64 << 20  # bytes
_HEAD = 4
_PR_SET_PDEATHSIG = 1


class BrokenFrameError(Exception):
    """The other side sent something that is no frame, or too large a one."""


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next frame; None where the other side has closed.

    Raises:
        BrokenFrameError: what came is no frame.
    """
    try:
        size = int.from_bytes(await reader.readexactly(_HEAD), "big")
        if size > MAX_FRAME:
            raise BrokenFrameError(f"a frame of {size} bytes; the limit is {MAX_FRAME}")
        frame = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except ValueError as error:
        raise BrokenFrameError("a frame that is no JSON") from error
    if not isinstance(frame, dict):
        raise BrokenFrameError("a frame that is no object")
    return frame


def frame_bytes(frame: dict[str, Any]) -> bytes:
    """One frame as it goes over the socket; raises BrokenFrameError where it is too large."""
    body = json.dumps(frame, ensure_ascii=False, separators=(",", ":"), default=str).encode(
        "utf-8", "surrogatepass"
    )
    if len(body) > MAX_FRAME:
        raise BrokenFrameError(f"a frame of {len(body)} bytes; the limit is {MAX_FRAME}")
    return len(body).to_bytes(_HEAD, "big") + body


class Deltas:
    """Makes each event of a stream as small as what it adds: texts and log probabilities come whole from SGLang."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._logprobs: dict[int, int] = {}

    def of(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event as it goes over the socket."""
        index = event.get("index", 0)
        text, last = event.get("text") or "", self._texts.get(index, "")
        self._texts[index] = text
        out: dict[str, Any] = {"index": index, "meta_info": self._meta(index, event.get("meta_info") or {})}
        out["logprobs_from"] = self._logprobs.get(index, 0)
        if text.startswith(last):
            out["added"] = text[len(last) :]
        else:
            out["text"] = text
        self._logprobs[index] = len((event.get("meta_info") or {}).get("output_token_logprobs") or ())
        return out

    def _meta(self, index: int, meta: dict[str, Any]) -> dict[str, Any]:
        start = self._logprobs.get(index, 0)
        sliced = {
            key: meta[key][start:]
            for key in ("output_token_logprobs", "output_top_logprobs")
            if meta.get(key)
        }
        return {**{key: meta[key] for key in _META if key in meta}, **sliced}


_SETTINGS = (
    "page_size", "enable_hierarchical_cache", "hicache_storage_backend", "disable_radix_cache",
)  # fmt: skip
_PARSERS = ("tool_call_parser", "reasoning_parser")
_META = (
    "finish_reason", "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens",
    "cached_tokens_details",
)  # fmt: skip


class Chats:
    """The classes behind SGLang's own chat route, without the HTTP in front of them."""

    def __init__(self, engine: Any) -> None:
        from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
        from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

        self._request = ChatCompletionRequest
        self._serving = OpenAIServingChat(engine.tokenizer_manager, engine.template_manager)

    async def render(self, body: dict[str, Any]) -> dict[str, Any]:
        """The token ids that the route makes of a body; None where it gives its engine a text."""
        convert = self._serving._convert_to_internal_request
        asked, _ = await asyncio.to_thread(convert, self._request(**body), None)
        ids = getattr(asked, "input_ids", None)
        return {"ids": None if ids is None else list(ids)}

    async def chunks(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The chunks of one streamed answer; raises RefusedError where the route answers with an error."""
        answer = await self._serving.handle_request(self._request(**body), None)
        if not hasattr(answer, "body_iterator"):
            raise RefusedError(answer)
        async for event in answer.body_iterator:
            text = event.decode() if isinstance(event, bytes) else event
            for line in text.splitlines():
                if line.startswith("data:") and line[5:].strip() != "[DONE]":
                    yield json.loads(line[5:])


class RefusedError(Exception):
    """SGLang's route answered with an error."""

    def __init__(self, answer: Any) -> None:
        said = json.loads(answer.body)
        said = said["error"] if isinstance(said.get("error"), dict) else said
        super().__init__(said.get("message"))
        self.status_code = int(answer.status_code)


class Worker:
    """Serves one parent."""

    def __init__(self, engine: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._engine = engine
        self._chats = Chats(engine)
        self._reader = reader
        self._writer = writer
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Until the parent closes the socket."""
        await self._send({"ready": self._info()})
        while True:
            frame = await read_frame(self._reader)
            if frame is None or frame.get("op") == "close":
                return
            self._take(frame)

    def _info(self) -> dict[str, Any]:
        args = self._engine.server_args
        settings = args.resolved_dict() if hasattr(args, "resolved_dict") else vars(args)
        manager = self._engine.tokenizer_manager
        # What was said as "auto" is known by now, and to the manager alone.
        now = {key: manager.config_value(key) for key in _PARSERS}
        context = manager.model_config.context_len
        return {"context_length": context, **{key: settings.get(key) for key in _SETTINGS}, **now}

    def _take(self, frame: dict[str, Any]) -> None:
        call = str(frame.get("id"))
        if frame.get("op") == "abort":
            self._engine.tokenizer_manager.abort_request(rid=str(frame.get("rid")))
            return
        task = asyncio.ensure_future(self._answer(call, frame))
        self._tasks[call] = task
        task.add_done_callback(lambda _: self._tasks.pop(call, None))

    async def _answer(self, call: str, frame: dict[str, Any]) -> None:
        try:
            done = await self._done(call, frame)
        except Exception as error:  # noqa: BLE001  whatever a request breaks is that request's answer
            status = getattr(error, "status_code", 400 if isinstance(error, ValueError) else 500)
            await self._send(
                {"id": call, "error": {"message": str(error) or type(error).__name__, "code": int(status)}}
            )
        else:
            await self._send({"id": call, "done": done})

    async def _done(self, call: str, frame: dict[str, Any]) -> dict[str, Any]:
        manager = self._engine.tokenizer_manager
        match frame.get("op"):
            case "generate":
                await self._generate(call, frame["request"])
                return {}
            case "chat":
                async for chunk in self._chats.chunks(frame["request"]):
                    await self._send({"id": call, "event": chunk})
                return {}
            case "render":
                return await self._chats.render(frame["request"])
            case "flush":
                answer = await manager.flush_cache()
                return {"success": bool(answer.success), "message": str(getattr(answer, "message", "") or "")}
            case "state":
                return {"states": await manager.get_internal_state()}
            case other:
                raise ValueError(f"unknown operation {other}")

    async def _generate(self, call: str, request: dict[str, Any]) -> None:
        from sglang.srt.managers.io_struct import GenerateReqInput

        deltas = Deltas()
        async for event in self._engine.tokenizer_manager.generate_request(GenerateReqInput(**request), None):
            await self._send({"id": call, "event": deltas.of(event)})

    async def _send(self, frame: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # the parent has gone; `serve` ends
            self._writer.write(frame_bytes(frame))
            await self._writer.drain()


def _die_with_parent(parent: int) -> None:
    """The kernel ends this process with its parent, even while the model loads. Linux only; the socket tells later."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


async def _open(fd: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = socket.socket(fileno=fd)
    connection.setblocking(False)
    return await asyncio.open_connection(sock=connection, limit=MAX_FRAME)


def main(fd: int) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    reader, writer = loop.run_until_complete(_open(fd))
    first = loop.run_until_complete(read_frame(reader))
    if first is None:
        return
    _die_with_parent(int(first["parent"]))
    import sglang

    engine = sglang.Engine(**first["engine"])
    try:
        loop.run_until_complete(Worker(engine, reader, writer).serve())
    finally:
        engine.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
