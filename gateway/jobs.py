"""From a body to work: which engine requests answer it, and in which form."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import EngineAdapter, GenerateRequest, Retention
from gateway.canonical.policies import Route
from gateway.canonical.recorder import AnswerRecorder
from gateway.canonical.stage import Canonical, CanonStage
from gateway.errors import context_too_long, invalid
from gateway.ledger.expectation import AskedPredictor, Predictor, SentRequest
from gateway.ledger.later import LaterExpectations
from gateway.ledger.sink import NO_LEDGER, LedgerSink
from gateway.limits.hints import HEADER as HINTS_HEADER
from gateway.limits.limits import Limits
from gateway.limits.tenant_limits import TenantLimits
from gateway.local.generation import Tagged
from gateway.prompts import PromptThreads
from gateway.responses.bindings import LocalBindings, ResponseBindings
from gateway.served import Backend, Served
from gateway.settings import GatewaySettings
from gateway.telemetry.tracing import NO_TRACING, Tracing
from gateway.tenants.authenticator import OPEN, Authenticator
from gateway.tenants.tenant import Tenant
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord
from gateway.wire.answers import AnswerHead, StreamedAnswer, WholeAnswer
from gateway.wire.extension import KvgateFields, retention
from gateway.wire.usage import HEADER, UsageFacts


@dataclass(frozen=True, slots=True)
class Job:
    """One accepted API request."""

    engine: EngineAdapter
    requests: Sequence[GenerateRequest]
    answer: StreamedAnswer | WholeAnswer
    recorder: AnswerRecorder | None = None  # None: the answer is not remembered

    def note(self, batch: Sequence[Tagged]) -> None:
        """Collect events for the memory."""
        if self.recorder is not None:
            for source, event in batch:
                self.recorder.add(source, event)


@dataclass(frozen=True, slots=True)
class JobContext:
    """What every route's job maker works with."""

    served: Served
    threads: PromptThreads
    settings: GatewaySettings
    canon: CanonStage
    ledger: LedgerSink = NO_LEDGER
    predictor: Predictor | None = None
    later: LaterExpectations | None = None  # the same one's; None: it has to be asked at once
    tracing: Tracing = NO_TRACING
    tenants: Authenticator = OPEN
    responses: ResponseBindings = field(default_factory=LocalBindings)
    limits: Limits = field(default_factory=Limits)

    def limits_of(self, tenant: Tenant) -> TenantLimits:
        """What the tenant may use."""
        return tenant.limits or self.settings.limits

    def max_running(self, engine: str, replicas: int = 1) -> int | None:
        """Requests that may run at an engine; None: as many as it takes."""
        bound = self.settings.max_running.get(engine)
        return None if bound is None else bound * replicas

    def room(self, engine: str) -> int | None:
        """Requests of this process that one replica should run at most; None: as many as it takes."""
        bound = self.settings.max_running.get(engine)
        return None if bound is None else self.limits.part(bound)


class JobMaker(Protocol):
    """One generation route: checks a body and makes its job; raises ApiError or EngineError."""

    async def __call__(self, incoming: Incoming, context: JobContext, record: RequestRecord) -> Job:
        """`record` takes what the access line says."""


def local_backend(served: Served, model: str, tenant: Tenant) -> Backend:
    """The engine in this process that has `model`; raises as `Served.find` does."""
    found = served.find(model, tenant)
    assert isinstance(found, Backend)  # what others have was sent on before
    return found


async def canonical(
    incoming: Incoming, route: Route, model: str, context: JobContext, record: RequestRecord
) -> Canonical:
    """The checked request as it goes on, noted in `record`; raises ApiError 400 for a policy that does not exist."""
    policy = context.canon.policy(route, model, incoming)
    canon, threads, scope = context.canon, context.threads, incoming.tenant.scope(model)
    began = time.perf_counter()
    try:
        if canon.remembers(policy):
            result = await threads.remember(incoming.size, partial(canon.apply, incoming, policy, scope))
        elif threads.is_short(incoming.size):
            result = canon.apply(incoming, policy, scope)
        else:
            result = await threads.canonicalize(incoming.size, partial(canon.apply, incoming, policy, scope))
    finally:
        record.stages.took("canonicalize", began)
    record.canon = result.told
    return result


async def expect(sent: SentRequest, context: JobContext, record: RequestRecord) -> None:
    """Note in `record` what the engine should have of this request, which goes to it now."""
    if isinstance(context.predictor, AskedPredictor):
        record.expected = await context.predictor.expecting(sent)
    elif context.predictor is not None:
        work = partial(context.predictor.expect, sent)
        record.expected = await context.threads.canonicalize(sent.size, work)


def usage_facts(incoming: Incoming, context: JobContext, record: RequestRecord) -> UsageFacts | None:
    """What `usage` is to tell beside the standard fields; None: nothing. Canon and expectation are noted by now.

    Raises:
        ApiError: 400, the client asks for a form that does not exist.
    """
    asked = incoming.header(HEADER)
    if asked not in (None, "standard", "full"):
        raise invalid(f"Invalid value for '{HEADER}': there are standard and full.", HEADER, "invalid_value")
    if (asked or context.settings.usage) != "full":
        return None
    canon = record.canon
    edits = sum(canon.edits.values()) if canon is not None and canon.applied else 0
    return UsageFacts(record.expected.known().predicted, record.block_size, edits)


def granted_retention(
    fields: KvgateFields | None, incoming: Incoming, tokens: int, context: JobContext, record: RequestRecord
) -> Retention | None:
    """What the tenant's quotas leave of a request's wishes; `tokens`: of its prompt. What is refused is told."""
    wish = retention(fields)
    if wish is None:
        return None
    session = context.canon.session(incoming) or str(incoming.body.get("prompt_cache_key") or "")
    tenant = incoming.tenant
    granted, told = context.limits.pins.granted(
        wish,
        context.limits_of(tenant),
        tenant=tenant.name,
        request=record.id,
        session=session or None,
        tokens=tokens,
    )
    if told is not None:
        record.told.append((HINTS_HEADER, told))
    return granted


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
