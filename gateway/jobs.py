"""From a body to work: which engine requests answer it, and in which form."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import EngineAdapter, GenerateRequest
from gateway.errors import context_too_long, invalid
from gateway.prompts import PromptThreads
from gateway.served import Served
from gateway.settings import GatewaySettings
from gateway.transport.record import RequestRecord
from gateway.wire.answers import AnswerHead, StreamedAnswer, WholeAnswer

_TENANT = "default"  # all requests are one tenant's until there are keys to tell tenants apart


@dataclass(frozen=True, slots=True)
class Job:
    """One accepted API request."""

    engine: EngineAdapter
    requests: Sequence[GenerateRequest]
    answer: StreamedAnswer | WholeAnswer


@dataclass(frozen=True, slots=True)
class JobContext:
    """What every route's job maker works with."""

    served: Served
    threads: PromptThreads
    settings: GatewaySettings


class JobMaker(Protocol):
    """One generation route: checks a body and makes its job; raises ApiError or EngineError."""

    async def __call__(
        self, body: Mapping[str, Any], size: int, context: JobContext, record: RequestRecord
    ) -> Job:
        """`size` is the body's length in bytes; `record` takes what the access line says."""


def memory_scope(model: str) -> str:
    """Within what prompts' encodings and KV may be shared: one tenant and one model."""
    return f"{_TENANT}/{model}"


def new_head(prefix: str, model: str, choices: int) -> AnswerHead:
    """A fresh answer id and time."""
    return AnswerHead(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), model, choices)


def room_for(ids: NDArray[np.int32], context_length: int, wanted: int | None, param: str) -> int:
    """Completion tokens that may be generated; raises ApiError 400 when not even one fits."""
    tokens = len(ids)
    if tokens == 0:
        raise invalid("The prompt has no tokens.", param, "invalid_value")
    room = context_length - tokens
    if room < 1:
        raise context_too_long(tokens, context_length, param)
    return room if wanted is None else min(wanted, room)
