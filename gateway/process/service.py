"""The life of a serving process: listen, load in the background, serve, drain, let the engine go."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import uvloop

from canon.errors import CanonError
from engine_adapters.errors import EngineError, EngineNotReadyError
from gateway.admin.app import AdminApp, AdminParts
from gateway.admin.options import AdminOptions
from gateway.admin.server import AdminServer
from gateway.garbage import keep_what_is_there, let_go
from gateway.huge_pages import use_huge_pages
from gateway.ledger.books import NO_BOOKS, Books
from gateway.ledger.errors import LedgerError
from gateway.limits.limits import Limits
from gateway.process.front import Front, OneProcess
from gateway.process.listener import ListenError, is_loopback, listen, url_of
from gateway.process.server import Ending, GatewayServer, server_config
from gateway.process.shared import Shared
from gateway.process.telling import tell_line
from gateway.reload.live import Configured, Live
from gateway.reload.reloader import Reloader
from gateway.reports.reconcile.scraper import EngineScraper
from gateway.routing.router import Router
from gateway.served import Backend, Load, Served
from gateway.surface.app import create_app_over
from gateway.tenants.authenticator import OPEN, Authenticator
from gateway.tenants.purging import Forgotten, PurgeAsk, Purges

log = logging.getLogger("kvgate.gateway")

_LOOK_AGAIN_S = 0.2

_NO_KEYS = (
    "{host} is reached from beyond this machine, and nobody would need a key: write tenants: into a configuration, "
    "listen on 127.0.0.1, or say --allow-no-keys where something else keeps strangers out."
)
_OPEN = (
    "WARNING: listening beyond this machine without keys: everyone who reaches this port can use the model."
)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where to listen and how to end."""

    host: str
    port: int
    ending: Ending = field(default_factory=Ending)
    allow_no_keys: bool = False  # True: listen beyond this machine although nobody needs a key
    admin: AdminOptions | None = None  # None: there is no admin app
    json: bool = False  # True: say "ready" on stdout as one JSON object


def check_open(
    listener: socket.socket, tenants: Authenticator, options: ServeOptions, *, tell: bool = True
) -> None:
    """Raise ListenError where strangers would get in; `tell` an operator who wants it so."""
    if tenants is OPEN and not is_loopback(listener):
        if not options.allow_no_keys:
            raise ListenError(_NO_KEYS.format(host=options.host))
        if tell:
            tell_line(_OPEN, sys.stderr)


class Service:
    """One serving process. `load` is None where all engines are behind HTTP; `reloader` where nothing can change."""

    def __init__(
        self,
        load: Load | None,
        options: ServeOptions,
        configured: Configured,
        books: Books = NO_BOOKS,
        front: Front | None = None,
        reloader: Reloader | None = None,
        shared: Shared | None = None,
    ) -> None:
        shared = shared or Shared()
        self._load = load
        self._options = options
        self._front: Front = front or OneProcess(options.host, options.port, json=options.json)
        self._served = Served(pools=configured.pools, embedded=load is not None)
        self._books = books
        self._reloader = reloader
        self._purges = Purges()
        self._purges.register("ledger", self._forget_rows)
        directories = shared.directories
        if directories is not None:
            self._purges.register("directory", directories.forget, once=True)

        def router(engine: str, own: Router) -> Router:
            ours = self._front.router(engine, own)
            return ours if directories is None else directories.router(engine, ours)

        limits = shared.limits or Limits(workers=self._front.counter)
        limits.processes = self._front.workers
        self._live = Live(configured, None if reloader is None else reloader.state, router)
        app = create_app_over(
            self._served,
            None,
            books.sink,
            self._front.predictor(books.predictor),
            books.capture,
            live=self._live,
            limits=limits,
            memory=shared.memory or self._front.memory,
            siblings=self._front.siblings,
            purges=self._purges,
        )
        self._app = app
        config = server_config(app, grace_s=options.ending.grace_s)
        self._server = GatewayServer(config, self._served, options.ending, self._live)
        self._loader = threading.Thread(target=self._load_model, name="kvgate-load", daemon=True)
        self._failed = False

    def run(self) -> int:
        """Serve until a signal; the process's exit status. Raises ListenError before anything is loaded."""
        listener = self._front.listen()
        self._url = url_of(listener)
        try:
            self._check_keys(listener)
        except ListenError:
            listener.close()
            raise
        asking = self._listen_for_admins()
        # The server raises the signal again when it has drained; by then it has had its effect.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(listener, asking))
        self._books.close()
        let_go()
        # Python's own end gives signals back their default, by which a late one would look like a crash.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if self._loader.is_alive():
            # A model half loaded cannot be stopped, and waiting for it would hold up the exit.
            logging.shutdown()
            sys.stderr.flush()
            os._exit(0)
        return 1 if self._failed else 0

    def _check_keys(self, listener: socket.socket) -> None:
        check_open(listener, self._live.now.tenants, self._options, tell=self._front.leader)
        if self._reloader is not None and not is_loopback(listener) and not self._options.allow_no_keys:
            self._reloader.needs_keys(_NO_KEYS.format(host=self._options.host))

    def _stop(self, *_: object) -> None:
        self._server.should_exit = True

    async def _serve(self, listener: socket.socket, asking: socket.socket | None) -> None:
        self._loop = asyncio.get_running_loop()
        await self._front.open()
        admin = self._start_admin(asking)
        if self._load is None:
            self._front.progress(f"listening on {self._url}, asking the engines")
            waiting = asyncio.create_task(self._wait_for_remotes())
        else:
            self._front.progress(f"listening on {self._url}, loading the model")
            self._loader.start()
            waiting = None
        scraping, reloading = self._start_scraping(), self._start_reloading()
        self._listener = listener
        await self._server.serve(sockets=[] if self._front.late else [listener])
        if admin is not None:
            await admin.aclose()
        log.info("stopped: all requests have ended")
        for task in (waiting, scraping, reloading):
            if task is not None:
                task.cancel()
        await self._front.aclose()

    def _listen_for_admins(self) -> socket.socket | None:
        """The admin app's socket, in the one process that has it; raises ListenError."""
        options = self._options.admin
        return listen(options.host, options.port) if options is not None and self._front.leader else None

    def _start_admin(self, listener: socket.socket | None) -> AdminServer | None:
        if listener is None:
            return None
        assert self._options.admin is not None
        parts = AdminParts(
            self._served, self._live, self._app.state.scrape, self._purges, self._front.siblings
        )
        server = AdminServer(AdminApp(self._options.admin, parts).app, listener)
        server.start()
        self._front.announce(f"admins are answered on {url_of(listener)}")
        return server

    async def _forget_rows(self, ask: PurgeAsk) -> Forgotten:
        try:
            return Forgotten(await asyncio.to_thread(self._books.forget, ask.tenant), "rows")
        except LedgerError as error:
            fields = {"tenant": ask.tenant, "reason": str(error)}
            log.error("a tenant's rows could not be forgotten", extra={"fields": fields})  # noqa: TRY400
            return Forgotten(None, f"{error}; then purge again", complete=False)

    def _start_scraping(self) -> asyncio.Task[None] | None:
        """Keep engines' own counters, which reports compare requests with."""
        if self._books.scrapes is None or not self._front.leader:
            return None
        scraper = EngineScraper(self._books.scrapes, self._served.counters)
        return asyncio.create_task(scraper.run())

    def _start_reloading(self) -> asyncio.Task[None] | None:
        """Follow the configuration's files; SIGHUP loads them at once."""
        if self._reloader is None:
            return None
        self._loop.add_signal_handler(signal.SIGHUP, self._reloader.ask)
        return asyncio.create_task(self._reloader.run(self._live))

    async def _wait_for_remotes(self) -> None:
        """Ready is who has asked all engines once, and has models to serve."""
        for pool in self._served.pools:
            await pool.asked()
        while True:
            try:
                models = self._served.models()
            except EngineNotReadyError:
                await asyncio.sleep(_LOOK_AGAIN_S)
            else:
                keep_what_is_there()
                use_huge_pages()
                await self._become_ready([model.name for model in models])
                return

    def _load_model(self) -> None:
        assert self._load is not None
        try:
            loaded = self._load(self._front.progress)
            if isinstance(loaded, Backend):
                backend = loaded
            else:
                backend = asyncio.run_coroutine_threadsafe(loaded, self._loop).result()
        except CancelledError:
            return  # the server ends
        except (EngineError, CanonError, OSError) as error:
            self._give_up(str(error))
        except Exception:
            log.exception("loading failed")
            self._give_up("the model could not be loaded")
        else:
            keep_what_is_there()
            asyncio.run_coroutine_threadsafe(self._take(backend), self._loop)

    def _give_up(self, reason: str) -> None:
        self._failed = True
        tell_line(f"Error: {reason}", sys.stderr)
        self._server.should_exit = True

    async def _take(self, backend: Backend) -> None:
        self._served.put(backend)
        await self._become_ready([backend.capabilities().model])

    async def _become_ready(self, models: Sequence[str]) -> None:
        await self._front.ready(self._url, models)
        if self._front.late:
            await self._server.open(self._listener)
