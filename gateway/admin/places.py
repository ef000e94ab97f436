"""How the gateway's own places forget a tenant: KV of engines, the memory, encodings, predictions, rows, bodies."""

import asyncio
from collections.abc import Callable
from functools import reduce

from engine_adapters.errors import EngineError, EngineNotReadyError, UnsupportedByEngineError
from gateway.canonical.stage import CanonStage
from gateway.ledger.capture import BodyCapture
from gateway.ledger.expectation import Predictor
from gateway.relay.remote import Remote
from gateway.responses.bindings import ResponseBindings
from gateway.served import Backend, Served
from gateway.tenants.purging import Forgotten, PurgeAsk, Purges, both

_CANNOT = "cannot forget one tenant"
_UNTIL_EVICTED = "goes when it is evicted, or with --flush-engines, which empties the engine"
_APART = f"{_CANNOT}: its salt keeps what is there from all others, and it {_UNTIL_EVICTED}"
_OPEN = f"{_CANNOT} and takes no salts: whoever sends the same prompt may find it there; it {_UNTIL_EVICTED}"


def register_places(
    purges: Purges,
    served: Served,
    canon: CanonStage,
    predictor: Predictor | None,
    capture: BodyCapture | None,
    responses: ResponseBindings,
) -> None:
    """All but the ledger, which belongs to whoever opened it."""
    purges.register("kv", lambda ask: _kv(served, ask), once=True)
    purges.register("engines", lambda ask: _engines(served, ask), once=True)

    async def memory(ask: PurgeAsk) -> Forgotten:
        return await asyncio.to_thread(_of_scopes, canon.forget, ask)

    async def encodings(_: PurgeAsk) -> Forgotten:
        backend = _backend(served)
        local = 0 if backend is None else backend.prompts.forget()
        remote = sum(pool.forget_prompts() for pool in served.pools)
        return Forgotten(local + remote, "of all tenants")

    async def predictions(_: PurgeAsk) -> Forgotten:
        if predictor is None:
            return Forgotten(0)
        predictor.forget()
        return Forgotten(None, "of all tenants: they begin anew")

    async def bodies(ask: PurgeAsk) -> Forgotten:
        if capture is None:
            return Forgotten(0)
        return Forgotten(await asyncio.to_thread(capture.forget, ask.tenant))

    async def kept(ask: PurgeAsk) -> Forgotten:
        return Forgotten(
            await responses.forget_tenant(ask.tenant), "ids; what engines keep under them is theirs"
        )

    purges.register("memory", memory)
    purges.register("encodings", encodings)
    purges.register("predictions", predictions)
    purges.register("bodies", bodies)
    purges.register("responses", kept)


def _backend(served: Served) -> Backend | None:
    try:
        return served.current()
    except EngineNotReadyError:
        return None


def _kept(ask: PurgeAsk) -> Forgotten:
    return Forgotten(0, f"kept, since {', '.join(ask.shared_with)} share it", complete=False)


def _of_scopes(forget: Callable[[str], int], ask: PurgeAsk) -> Forgotten:
    return Forgotten(sum(map(forget, ask.scopes))) if ask.whole else _kept(ask)


async def _kv(served: Served, ask: PurgeAsk) -> Forgotten:
    """The engine of this process, on every tier."""
    backend = _backend(served)
    if backend is None:
        return Forgotten(0)
    if not ask.whole:
        return _kept(ask)
    blocks, pending = 0, set[str]()
    for scope in ask.scopes:
        try:
            purged = await backend.engine.purge(scope)
        except UnsupportedByEngineError:
            if ask.flush_engines:
                await backend.engine.flush()
                return Forgotten(None, "the engine was emptied")
            return Forgotten(None, f"{backend.name} {_APART}", complete=False)
        blocks += purged.blocks or 0
        pending |= set(purged.pending)
    if pending:
        told = f"blocks; those on {', '.join(sorted(pending))} are out of use, and erased when it answers"
        return Forgotten(blocks, told)
    return Forgotten(blocks, "blocks")


async def _engines(served: Served, ask: PurgeAsk) -> Forgotten:
    """Those behind HTTP. Other kvgates forget by salt, where they can be asked to; the others only everything."""
    found: list[Forgotten] = []
    for pool in served.pools:
        found += [await _forgotten(remote, ask) for remote in pool.replicas]
    if not found:
        return Forgotten(0)
    return reduce(both, found)


async def _forgotten(remote: Remote, ask: PurgeAsk) -> Forgotten:
    try:
        if ask.salt is not None and remote.engine.forgets:
            told = await remote.engine.forget(ask.tenant, ask.salt, shared=not ask.whole)
            detail = "" if told.complete else f"{remote.replica} kept something: {told.detail}"
            return Forgotten(told.blocks, detail, complete=told.complete)
        if not ask.flush_engines:
            apart = ask.salt is not None and remote.takes_salt
            return Forgotten(None, f"{remote.name} {_APART if apart else _OPEN}", complete=False)
        await remote.engine.flush()
    except EngineError as error:
        return Forgotten(None, f"{remote.replica}: {error}", complete=False)
    return Forgotten(None, "all were emptied")
