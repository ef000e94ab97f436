"""From what a server is made of to the process that it runs as: alone, as the parent of several, or as one of those."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.ledger.books import NO_BOOKS, Books
from gateway.logs import name_process
from gateway.process.front import Front
from gateway.process.service import ServeOptions, Service, check_open
from gateway.process.shared import Shared
from gateway.prompts import PromptSource
from gateway.reload.live import Configured
from gateway.reload.reloader import Reloader
from gateway.served import Load
from gateway.settings import GatewaySettings
from gateway.tenants.authenticator import OPEN, Authenticator
from gateway.workers.seat import Seat


@dataclass(frozen=True, slots=True)
class Serving:
    """What requests get at the start, and who brings something else later; None: nobody does."""

    configured: Configured
    reloader: Reloader | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a server is made of. What is called is called only in processes that use it."""

    where: ServeOptions
    settings: GatewaySettings
    load: Load | None  # None: no engine runs in this server
    prompts: Callable[[Path], PromptSource] | None  # makes that engine's prompts, of a tokenizer's folder
    serving: Callable[[], Serving]  # for processes that serve
    books: Callable[[bool], Books] = lambda _: NO_BOOKS  # True: this process deletes old rows
    tenants: Authenticator = OPEN
    shared: Callable[[], Shared] = Shared

    def service(self, load: Load | None, front: Front | None = None) -> Service:
        """All of it in this process."""
        serving = self.serving()
        # Which process it is that sends is known here.
        settings = replace(serving.configured.settings, otel=self.settings.otel)
        configured = replace(serving.configured, settings=settings)
        books = self.books(front is None or front.leader)
        return Service(load, self.where, configured, books, front, serving.reloader, self.shared())


def run(parts: Parts, workers: int, seat: Seat | None) -> int:
    """Until a signal; the exit status. `seat`: this process is a part of a server; None: it is a server.

    Raises:
        LedgerError, ListenError: before anything is loaded or contacted.
    """
    if seat is not None:
        return _run_seated(parts, seat)
    if workers == 1:
        return parts.service(parts.load).run()
    from gateway.workers.child import command
    from gateway.workers.supervisor import Patience, Supervisor

    where = parts.where
    patience = Patience(drain_s=where.ending.delay_s + where.ending.grace_s + 30)
    return Supervisor(
        command(sys.argv[1:]),
        where.host,
        where.port,
        workers,
        engine=parts.load is not None,
        json=where.json,
        patience=patience,
        check=lambda kept: check_open(kept, parts.tenants, where),
    ).run()


def _run_seated(parts: Parts, seat: Seat) -> int:
    role, canon = seat.plan.role, parts.settings.canon
    name_process(seat.plan.name)
    if role == "state":
        from gateway.workers.state_process import run_state

        return run_state(seat, canon)
    if role == "engine":
        from gateway.workers.engine_process import run_engine

        assert parts.load is not None
        return run_engine(seat, parts.load)
    from gateway.workers.worker import WorkerFront, engine_load

    front = WorkerFront(seat, canon)
    otel = parts.settings.otel
    if otel is not None:
        instance = f"{seat.plan.server}/{seat.plan.index}"
        parts = replace(parts, settings=replace(parts.settings, otel=replace(otel, instance=instance)))
    load = None if parts.prompts is None else engine_load(seat, parts.prompts)
    return parts.service(load, front).run()
