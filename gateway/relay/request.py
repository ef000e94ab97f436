"""From a body to what goes to another engine: checked, canonical, with what must be told on the way back."""

import secrets
import time
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from engine_adapters.remote.cache_salt import salt_upstream
from engine_adapters.remote.http_engine import prompts_in
from engine_adapters.remote.relay import RelayRequest, RewriteError, Rewrites, Route
from gateway.canonical.policies import Route as CanonRoute
from gateway.canonical.recorder import Recording
from gateway.errors import ApiError, invalid
from gateway.jobs import JobContext, canonical, expect, usage_facts
from gateway.ledger.expectation import Expected, Routed, SentRequest
from gateway.limits.several_prompts import check_prompts
from gateway.relay.body import RelayedBody, relayed
from gateway.relay.bounds import check_bounds
from gateway.relay.control_tokens import ControlTokenCheck
from gateway.relay.errors import from_event
from gateway.relay.guard import Guard
from gateway.relay.remote import Remote
from gateway.relay.usage import usage_rewrite
from gateway.replicas.deadline import HEADER as TIMEOUT
from gateway.replicas.pool import EnginePool
from gateway.routing.kv_changes import seed_of
from gateway.routing.prompt_tokens import IDS_IN, PromptTokens
from gateway.routing.router import Decision, RouteAsk
from gateway.routing.steering import session_of
from gateway.surface.routes import has_none
from gateway.tenants.tenant import DEFAULT
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord
from gateway.wire.extension import NAME as EXTENSION
from gateway.wire.extension import without_extension
from gateway.wire.usage import HEADER

# What has a prompt that canon knows; all else goes on as it came.
_CANONICAL: Mapping[Route, CanonRoute] = {
    "chat": "chat",
    "completions": "completions",
    "responses": "responses",
    "messages": "messages",
}
_ELSEWHERE = ("lora_path", "previous_response_id", "conversation")
_PASSED_ON_TO_MESSAGES = ("anthropic-version", "anthropic-beta")


class Prepared(msgspec.Struct, frozen=True):
    """One request that could go to any replica of its engine."""

    incoming: Incoming
    route: Route
    wanted: RelayedBody
    body: Mapping[str, Any]  # as it goes on
    raw: bytes  # the same
    recording: Recording | None  # where its answer is to be remembered
    ask: RouteAsk
    guard: Guard


class Outgoing(msgspec.Struct, frozen=True):
    """One request as it goes on."""

    request: RelayRequest
    rewrites: Rewrites
    recording: Recording | None  # where its answer is to be remembered
    replica: str | None  # as the record says it
    expected: Expected
    prompt: bool  # whether it has one


async def prepared(
    incoming: Incoming, route: Route, pool: EnginePool, context: JobContext, record: RequestRecord
) -> Prepared:
    """What all replicas would be sent; raises ApiError for what is wrong with it here."""
    wanted = relayed(incoming.body)
    record.model, record.stream = incoming.model[:200], bool(wanted.stream)
    record.engine, record.block_size = pool.name, pool.block_size
    if route not in pool.routes:
        raise ApiError(404, has_none(pool.name, route, pool.routes), param="model", code="unsupported_route")
    wanted.check(context.settings)
    if route in _CANONICAL:
        check_bounds(incoming.body)
    check_prompts(route, incoming.body, context.limits_of(incoming.tenant), record)
    if context.threads.is_short(incoming.size):
        pool.guard.check(incoming.body, incoming.tenant)
    else:
        look = partial(pool.guard.check, incoming.body, incoming.tenant)
        await context.threads.canonicalize(incoming.size, look)
    if EXTENSION in incoming.body:
        incoming = await context.threads.parse(incoming.size, partial(without_extension, incoming))
    body: Mapping[str, Any] = incoming.body
    raw, recording, tokens = incoming.raw, None, None
    canon_route = _CANONICAL.get(route)
    if canon_route is not None:
        sent = await canonical(incoming, canon_route, incoming.model, context, record)
        body, recording = sent.body, sent.recording
        if sent.raw is not None:
            raw = sent.raw
        else:
            raw = await context.threads.parse(incoming.size, partial(orjson.dumps, body))
    if pool.tokens is not None:
        await _check_ids(pool.tokens, body, incoming, route, context)
    if pool.tokens is not None and canon_route is not None:
        tokens = await _tokens(pool, pool.tokens, body, incoming, route, context, record)
    ask = RouteAsk(
        request_id=record.id,
        engine=pool.name,
        model=incoming.model,
        body=body,
        size=incoming.size,
        tenant=incoming.tenant,
        tokens=tokens,
        session=session_of(incoming, context.settings.canon.session_headers),
        streams=bool(wanted.stream),
        prompt=canon_route is not None,
        seed=None if tokens is None or pool.events is None else _seed(body, incoming, pool),
    )
    return Prepared(incoming, route, wanted, body, raw, recording, ask, pool.guard)


async def outgoing(
    given: Prepared, remote: Remote, decision: Decision, context: JobContext, record: RequestRecord
) -> Outgoing:
    """The request for the replica that was chosen; raises ApiError for what this one does not take."""
    incoming, route, body = given.incoming, given.route, given.body
    replica = record.replica = None if remote.replica == remote.name else remote.replica
    record.block_size = remote.block_size
    given.guard.check_replica(remote, route, incoming.tenant)
    if remote.control_tokens is not None:
        await _look_for_control_tokens(remote.control_tokens, given, context, record)
    if given.ask.prompt:
        sent = _sent(given, remote, decision)
        if context.later is not None and context.threads.is_short(sent.size):
            record.expected = context.later.expect(sent)
        else:
            await expect(sent, context, record)
    facts = usage_facts(incoming, context, record)
    engine_id = _engine_id(incoming, record)
    own = remote.models.get(incoming.model, incoming.model)
    request = RelayRequest(
        request_id=engine_id,
        route=route,
        body=given.raw,
        stream=bool(given.wanted.stream),
        model=own,
        asks_usage=given.wanted.asks_usage or incoming.header(HEADER) == "full",
        salt=incoming.tenant.salt,
        tenant=incoming.tenant.name,
        headers=_headers(incoming, route, record, engine_id),
        parsed=body,
        names=_names(remote, incoming, own),
        tokens=given.ask.tokens,
    )
    record.choices = _choices(body) * prompts_in(request)
    rewrites = Rewrites(usage_rewrite(facts), error_event(route))
    return Outgoing(request, rewrites, given.recording, replica, record.expected, given.ask.prompt)


async def _tokens(
    pool: EnginePool,
    tokens: PromptTokens,
    body: Mapping[str, Any],
    incoming: Incoming,
    route: Route,
    context: JobContext,
    record: RequestRecord,
) -> NDArray[np.int32] | None:
    """The prompt's, shape [tokens], where this gateway can make it as the engine will, and some replica may take it."""
    most = pool.longest_context
    began = time.perf_counter()
    try:
        steps = partial(tokens.steps, route, body, incoming.tenant.scope(incoming.model), most)
        return await context.threads.encode_together(incoming.size, steps)
    finally:
        record.stages.took("tokenize", began)


async def _check_ids(
    tokens: PromptTokens, body: Mapping[str, Any], incoming: Incoming, route: Route, context: JobContext
) -> None:
    """Raises ApiError 400 for token ids that the model has not."""
    if not isinstance(body.get(IDS_IN.get(route, "")), list):
        return
    param = await context.threads.canonicalize(incoming.size, partial(tokens.strange, route, body))
    if param is not None:
        raise invalid("There are token ids outside this model's vocabulary.", param, "invalid_value")


def _seed(body: Mapping[str, Any], incoming: Incoming, pool: EnginePool) -> bytes | None:
    """Under what replicas tell of this prompt; None: they cannot, or it is a LoRA's or goes on from elsewhere."""
    adapter = any(
        each.able is not None and each.models.get(incoming.model, incoming.model) in each.able.adapters
        for each in pool.replicas
    )
    if adapter or any(body.get(name) is not None for name in _ELSEWHERE):
        return None
    try:
        return seed_of(salt_upstream(incoming.tenant.salt, body))
    except ValueError:
        return None


def _sent(given: Prepared, remote: Remote, decision: Decision) -> SentRequest:
    """What is told of it to whoever expects reuse."""
    ask, routed = given.ask, _routed(decision)
    return SentRequest(
        # What the router knows of all replicas is told of them all; else each has a shadow of its own.
        engine=ask.engine if routed is not None else remote.replica,
        scope=ask.scope,
        came=given.incoming.body,
        sent=given.body,
        size=given.incoming.size,
        block_size=remote.block_size,
        tokens=ask.tokens,
        routed=routed,
        cache_tokens=remote.cache_tokens,
    )


def _routed(decision: Decision) -> Routed | None:
    """What was expected when the replica was chosen; None: nothing was."""
    if decision.prompt is None:
        return None
    here, anywhere = decision.predicted, decision.anywhere
    if here is None or anywhere is None:
        return None
    return Routed(here, anywhere, decision.prompt, decision.counted)


async def _look_for_control_tokens(
    check: ControlTokenCheck, given: Prepared, context: JobContext, record: RequestRecord
) -> None:
    """Note special tokens that were typed; raises ApiError 400 where they are to be rejected."""
    if not check.concerns(given.route):
        return
    look = partial(check.found, given.route, given.body, given.raw)
    found = await context.threads.canonicalize(given.incoming.size, look)
    if found and record.canon is not None:
        record.canon = record.canon.with_control_tokens(found)


def _names(remote: Remote, incoming: Incoming, own: str) -> Mapping[str, str]:
    """What the replica calls the model (`own`), as the client does, by an alias for example."""
    asked = incoming.body.get("model")
    if isinstance(asked, str) and asked:
        return {own: asked}
    return remote.shown(incoming.tenant)


def _choices(body: Mapping[str, Any]) -> int:
    """What the engine makes of another value is for it to say."""
    wanted = body.get("n")
    return wanted if isinstance(wanted, int) and wanted > 0 else 1


def _engine_id(incoming: Incoming, record: RequestRecord) -> str:
    """The engine's name of the request: vLLM takes it from the header, and two tenants may not both choose it."""
    if incoming.tenant is DEFAULT or incoming.header("x-request-id") is None:
        return record.id
    return f"{record.id}-{secrets.token_hex(8)}"


def _headers(incoming: Incoming, route: Route, record: RequestRecord, engine_id: str) -> dict[str, str]:
    given = {"x-request-id": engine_id, **record.trace.headers}
    if route in ("messages", "count_tokens"):
        for name in _PASSED_ON_TO_MESSAGES:
            if (value := incoming.header(name)) is not None:
                given[name] = value
    if (left_s := record.deadline.left_s) is not None:
        given[TIMEOUT] = f"{left_s:.3f}"  # for an engine that has an ear for it, another kvgate among them
    return given


@cache
def error_event(route: Route) -> RewriteError:
    """Puts an engine's error event into the shape of this route's."""

    def rewrite(payload: dict[str, Any]) -> Mapping[str, Any]:
        body = from_event(payload).body()
        return {"type": "error", **body} if route == "messages" else body

    return rewrite
