"""An engine that answers every route of OpenAI's API that kvgate relays, always alike, as its schema has it.

For suites that others wrote: they look at the form of answers, and at nothing that a model would say.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.process.listener import listen, url_of

CREATED = 1_700_000_000
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 4},
}
RESPONSE_USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 9,
}


def chat(body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hello", "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return _object("chatcmpl_1", "chat.completion", body, choices=[choice], usage=USAGE)


def chat_events(body: dict[str, Any]) -> list[dict[str, Any]]:
    deltas = [({"role": "assistant", "content": "Hello"}, None), ({}, "stop")]
    events = [
        _object(
            "chatcmpl_1",
            "chat.completion.chunk",
            body,
            choices=[{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}],
        )
        for delta, reason in deltas
    ]
    return [*events, _object("chatcmpl_1", "chat.completion.chunk", body, choices=[], usage=USAGE)]


def completion(body: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "text": "Hello", "finish_reason": "stop", "logprobs": None}
    return _object("cmpl_1", "text_completion", body, choices=[choice], usage=USAGE)


def embeddings(body: dict[str, Any]) -> dict[str, Any]:
    """Numbers, as the schema has it, also where a client asks for base64."""
    data = [{"object": "embedding", "index": 0, "embedding": [1.0, 2.0]}]
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def response(body: dict[str, Any]) -> dict[str, Any]:
    """Its id is what `metadata.id` says."""
    text = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    item = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    return {
        "id": (body.get("metadata") or {}).get("id", "resp_1"),
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": body.get("model") or "answering",
        "output": [item],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": RESPONSE_USAGE,
    }


def response_events(body: dict[str, Any]) -> list[dict[str, Any]]:
    whole = response(body)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    delta = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "Hello",
        "logprobs": [],
    }
    events = [
        {"type": "response.created", "response": begun},
        delta,
        {"type": "response.completed", "response": whole},
    ]
    return [{**each, "sequence_number": number} for number, each in enumerate(events)]


ITEMS = {
    "object": "list",
    "data": [
        {
            "id": "msg_0",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "Hi"}],
        }
    ],
    "first_id": "msg_0",
    "last_id": "msg_0",
    "has_more": False,
}


def _object(id_: str, kind: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": id_, "object": kind, "created": CREATED, "model": body["model"], **more}


def _streamed(events: list[dict[str, Any]], *, done: bool) -> Response:
    frames = [
        (f"event: {each['type']}\n" if "type" in each else "") + f"data: {json.dumps(each)}\n\n"
        for each in events
    ]
    return StreamingResponse(
        iter([*frames, *(["data: [DONE]\n\n"] if done else [])]), media_type="text/event-stream"
    )


async def _chat(request: Request) -> Response:
    body = await request.json()
    return _streamed(chat_events(body), done=True) if body.get("stream") else JSONResponse(chat(body))


async def _completions(request: Request) -> Response:
    body = await request.json()
    if body.get("stream"):
        return _streamed([completion(body)], done=True)
    return JSONResponse(completion(body))


async def _embeddings(request: Request) -> Response:
    return JSONResponse(embeddings(await request.json()))


async def _responses(request: Request) -> Response:
    body = await request.json()
    if body.get("stream"):
        return _streamed(response_events(body), done=False)
    return JSONResponse(response(body))


async def _response(request: Request) -> Response:
    body = {"metadata": {"id": request.path_params["id"]}}
    if request.method == "DELETE":
        return Response(status_code=200, headers={"content-length": "0"})
    if request.query_params.get("stream") == "true":
        return _streamed(response_events(body), done=False)
    return JSONResponse(response(body))


async def _items(_: Request) -> Response:
    return JSONResponse(ITEMS)


@contextmanager
def answering_engine(models: Sequence[str]) -> Iterator[str]:
    """Serves for the block; its address."""

    async def listed(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name} for name in models]})

    app = Starlette(
        routes=[
            Route("/v1/models", listed),
            Route("/v1/chat/completions", _chat, methods=["POST"]),
            Route("/v1/completions", _completions, methods=["POST"]),
            Route("/v1/embeddings", _embeddings, methods=["POST"]),
            Route("/v1/responses", _responses, methods=["POST"]),
            Route("/v1/responses/{id}", _response, methods=["GET", "DELETE"]),
            Route("/v1/responses/{id}/cancel", _response, methods=["POST"]),
            Route("/v1/responses/{id}/input_items", _items),
        ]
    )
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(timeout=60)
