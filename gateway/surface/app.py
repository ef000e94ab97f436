"""The HTTP surface: FastAPI for routes and docs, plain ASGI where bytes stream."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from canon.memory import MemoryStore
from engine_adapters.base import EngineAdapter
from engine_adapters.remote.relay import Route as EngineRoute
from gateway.admin.places import register_places
from gateway.canonical.stage import CanonStage
from gateway.errors import ApiError
from gateway.jobs import JobContext, JobMaker
from gateway.ledger.capture import BodyCapture
from gateway.ledger.expectation import AskedPredictor, Predictor
from gateway.ledger.later import LaterExpectations
from gateway.ledger.sink import NO_LEDGER, LedgerSink
from gateway.limits.limits import Limits
from gateway.local.answer import LocalRoute
from gateway.local.chat import chat_job
from gateway.local.completions import completions_job
from gateway.local.tokenization import DetokenizeRoute, TokenizeRoute
from gateway.process.front import ALONE, Siblings
from gateway.prompts import PromptSource, PromptThreads
from gateway.reload.live import Apps, Configured, EpochRoute, Live
from gateway.responses.bindings import LocalBindings
from gateway.responses.endpoint import KeptResponseEndpoint
from gateway.responses.shared_bindings import SharedBindings
from gateway.served import Backend, Served
from gateway.settings import GatewaySettings
from gateway.surface.admission import Admission
from gateway.surface.aftermath import Aftermath
from gateway.surface.endpoint import GenerationEndpoint, LocalAnswer
from gateway.surface.models import ModelRoutes
from gateway.surface.openapi import document_generation
from gateway.surface.refusals import refusal
from gateway.surface.routes import KEPT_PATHS, LOCAL, PATHS
from gateway.surface.straight import StraightApp
from gateway.telemetry.telemetry import Telemetry
from gateway.tenants.authenticator import OPEN, Authenticator
from gateway.tenants.purging import Purges
from gateway.transport.answer import json_response
from gateway.transport.body_capture import CaptureBodies
from gateway.transport.record import record_of
from gateway.transport.request_context import RequestContext


def create_app(
    engine: EngineAdapter, prompts: PromptSource, settings: GatewaySettings | None = None
) -> FastAPI:
    """The app over an engine that is loaded already."""
    return create_app_over(Served(Backend(engine, prompts)), settings)


def create_app_over(
    served: Served,
    settings: GatewaySettings | None = None,
    ledger: LedgerSink = NO_LEDGER,
    predictor: Predictor | None = None,
    capture: BodyCapture | None = None,
    tenants: Authenticator = OPEN,
    live: Live | None = None,
    limits: Limits | None = None,
    memory: MemoryStore | None = None,
    siblings: Siblings = ALONE,
    purges: Purges | None = None,
) -> FastAPI:
    """The app over a model that may still be loading (`served.put()` makes it ready), and engines behind HTTP.

    `live` is for who changes the configuration later; settings and tenants are then in there. `memory` is where
    conversations are remembered (None: in this process), and `siblings` are processes that serve beside this one.
    `limits` count what tenants use (None: in this process).
    `purges` takes how all that is made here forgets a tenant. `app.state.scrape` answers GET /metrics.
    """
    live = live or Live(Configured(settings or GatewaySettings(), served.pools, tenants))
    settings = live.now.settings
    threads = PromptThreads(settings, memory_waits=memory is not None)
    admission = Admission(settings)
    limits = limits or Limits()
    telemetry = Telemetry(served, admission, ledger, settings.otel, siblings, limits, live.state)

    aftermath = Aftermath(ledger, predictor, (telemetry.ended,))

    async def scrape(request: Request) -> Response:
        aftermath.flush()
        return await telemetry.scrape(request)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for pool in served.pools:
            pool.start()
        limits.start()
        yield
        await live.aclose()  # again, where a server did it
        threads.close()
        await limits.aclose()
        aftermath.flush()
        await telemetry.tracing.aclose()

    def around(inner: ASGIApp) -> ASGIApp:
        kept = inner if capture is None else CaptureBodies(inner, capture)
        return RequestContext(kept, aftermath.take)

    app = StraightApp(
        title="kvgate", docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan
    )
    app.add_middleware(around)
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    _add_model_routes(app, ModelRoutes(served, settings, lambda: live.now.tenants))
    app.state.scrape = scrape
    app.state.no_such_path = _no_such_path(metrics=settings.metrics)
    if settings.metrics:
        app.add_api_route("/metrics", scrape, methods=["GET"], include_in_schema=False)
    canon = CanonStage(settings.canon, memory=memory)
    asked = isinstance(predictor, AskedPredictor)  # of another process
    context = JobContext(
        served,
        threads,
        settings,
        canon,
        ledger,
        predictor,
        tracing=telemetry.tracing,
        tenants=tenants,
        later=None if predictor is None or asked else LaterExpectations(predictor),
        limits=limits,
        responses=LocalBindings() if memory is None else SharedBindings(memory),
    )
    if purges is not None:
        register_places(purges, served, canon, predictor, capture, context.responses)
        siblings.offer("purge", purges.asked)
    live.serve(_Endpoints(context, served, admission).made)
    straight = {path: EpochRoute(route, live) for route, paths in PATHS.items() for path in paths}
    app.go_straight(straight, around)
    app.router.routes += [
        Route(path, endpoint=endpoint, methods=["POST"]) for path, endpoint in straight.items()
    ]
    for route, (method, path) in KEPT_PATHS.items():
        app.router.routes.append(Route(path, endpoint=EpochRoute(route, live), methods=[method]))
    document_generation(app)
    return app


_LOCAL_JOBS: Mapping[EngineRoute, JobMaker] = {"chat": chat_job, "completions": completions_job}


def _no_such_path(*, metrics: bool) -> str:
    """`metrics`: whether those are answered here, and not at the admin port alone."""
    there = [*(paths[0] for paths in PATHS.values()), "/v1/models", "/health", "/ready"]
    if metrics:
        there.append("/metrics")
    return f"There is nothing at this path; there are {', '.join(there[:-1])} and {there[-1]}."


class _Endpoints:
    """Makes the generation routes of each configuration; what is not in it stays the same."""

    def __init__(self, first: JobContext, served: Served, admission: Admission) -> None:
        self._context = first
        self._served = served  # of those who look at what there is now
        self._admission = admission

    def made(self, configured: Configured) -> Apps:
        """From now on this configuration counts.

        Every path is there, whichever engines are: what an engine has not is refused by its name.
        """
        before, settings = self._context, configured.settings
        self._served.pools, self._served.aliases = configured.pools, settings.aliases
        self._admission.take(settings)
        canon = CanonStage(settings.canon, before.canon)
        self._context = replace(
            before,
            served=self._served.over(configured.pools, settings.aliases),
            settings=settings,
            canon=canon,
            tenants=configured.tenants,
        )
        return {**self._generation(), **self._kept()}

    def _generation(self) -> Apps:
        context = self._context
        local: dict[EngineRoute, LocalAnswer] = {
            route: LocalRoute(make_job, context) for route, make_job in _LOCAL_JOBS.items()
        }
        local |= {"tokenize": TokenizeRoute(context), "detokenize": DetokenizeRoute(context)}
        assert local.keys() == LOCAL
        return {
            route: GenerationEndpoint(route, context, self._admission, local.get(route)) for route in PATHS
        }

    def _kept(self) -> Apps:
        return {route: KeptResponseEndpoint(route, self._context, self._admission) for route in KEPT_PATHS}


def _add_model_routes(app: FastAPI, routes: ModelRoutes) -> None:
    for path, answer in (("/health", routes.health), ("/ready", routes.ready)):
        app.add_api_route(path, answer, methods=["GET"])
        app.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)
    app.add_api_route("/v1/models", routes.list_models, methods=["GET"])
    # Names may hold slashes, as Hugging Face names do.
    app.add_api_route("/v1/models/{model:path}", routes.get_model, methods=["GET"])


async def _answer_api_error(request: Request, error: Exception) -> Response:
    answer = refusal(error, record_of(request.scope), retry_after_s=0)  # an ApiError brings its own wait
    return json_response(answer.body(), status=answer.status, headers=answer.headers)


async def _answer_http_exception(request: Request, raised: Exception) -> Response:
    error = cast(HTTPException, raised)
    told = {
        404: (request.app.state.no_such_path, "unknown_url"),
        405: (f"{request.method} is not possible here.", "method_not_allowed"),
    }
    message, code = told.get(error.status_code, (str(error.detail), None))
    refused = ApiError(error.status_code, message, code=code, headers=error.headers)
    return await _answer_api_error(request, refused)
