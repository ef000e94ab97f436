"""Requests, events and capabilities as they go between processes.

Fields travel by name, so that what the contract gains travels too; token ids as the bytes they are.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import (
    Capabilities,
    Event,
    Finished,
    GenerateRequest,
    ReasoningDelta,
    Retention,
    SamplingParams,
    TextDelta,
    ToolCallDelta,
    ToolOptions,
    Usage,
)

_EVENTS: tuple[type[Any], ...] = (TextDelta, ReasoningDelta, ToolCallDelta, Finished, Usage)
_KINDS = {each: number for number, each in enumerate(_EVENTS)}
# `raw` stays behind; `body` goes only to engines that have a use for it: others take token ids.
_APART = frozenset({"prompt_ids", "sampling", "tools", "retention", "body", "raw"})
_PLAIN = tuple(each.name for each in fields(GenerateRequest) if each.name not in _APART)


def event_sent(event: Event) -> tuple[int, Event]:
    """An event as a value that a frame takes."""
    return _KINDS[type(event)], event


def event_read(value: Any) -> Event:
    """The event; raises ValueError, IndexError or TypeError for what is none."""
    kind, data = value
    event: Event = msgspec.convert(data, _EVENTS[kind])
    return event


def request_sent(request: GenerateRequest, *, body: bool = False) -> dict[str, Any]:
    """A request as a value that a frame takes, with its body or without."""
    return {
        **{name: getattr(request, name) for name in _PLAIN},
        "prompt_ids": ids_sent(request.prompt_ids),
        "sampling": request.sampling,
        "tools": _tools_sent(request.tools),
        "retention": request.retention,
        "body": json.dumps(request.body) if body else None,  # in ASCII, as tools are
    }


def request_read(value: Mapping[str, Any]) -> GenerateRequest:
    """The request; raises ValueError, KeyError or TypeError for what is none."""
    retention, body = value["retention"], value["body"]
    return GenerateRequest(
        **{name: value[name] for name in _PLAIN},
        prompt_ids=ids_read(value["prompt_ids"]),
        sampling=msgspec.convert(value["sampling"], SamplingParams),
        tools=_tools_read(value["tools"]),
        retention=None if retention is None else msgspec.convert(retention, Retention),
        body={} if body is None else json.loads(body),
    )


def ids_sent(ids: NDArray[np.int32]) -> bytes:
    """Token ids as bytes, 4 each, of this machine's order."""
    return np.ascontiguousarray(ids, dtype=np.int32).tobytes()


def ids_read(data: bytes) -> NDArray[np.int32]:
    """The ids, shape [tokens]."""
    return np.frombuffer(data, dtype=np.int32)


def capabilities_read(value: Any) -> Capabilities:
    """From a value that came in a frame; raises ValueError."""
    return msgspec.convert(value, Capabilities)


def _tools_sent(tools: ToolOptions | None) -> str | None:
    """As JSON text in ASCII: what a client wrote may hold lone surrogates, and numbers of any size."""
    if tools is None:
        return None
    return json.dumps([tools.tools, tools.choice, tools.named, tools.parallel])


def _tools_read(text: str | None) -> ToolOptions | None:
    if text is None:
        return None
    offered, choice, named, parallel = json.loads(text)
    return ToolOptions(tuple(offered), choice, named, parallel)
