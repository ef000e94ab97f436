"""GET /v1/models and /v1/models/{id}, /health and /ready."""

import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.kvgate import FACTS, OWNER
from gateway.behind import facts_of
from gateway.errors import from_engine, not_ready
from gateway.served import Served, ServedModel
from gateway.settings import GatewaySettings
from gateway.tenants.authenticator import OPEN, Authenticator
from gateway.tenants.tenant import UNKNOWN, Tenant
from gateway.transport.answer import json_response
from gateway.transport.record import record_of


class ModelRoutes:
    """What can be asked without generating anything."""

    def __init__(
        self, served: Served, settings: GatewaySettings, tenants: Callable[[], Authenticator] = lambda: OPEN
    ) -> None:
        """`tenants` gives who tells tenants apart now."""
        self._served = served
        self._tenants = tenants
        self._retry_after_s = settings.retry_after_s
        self._created = int(time.time())

    async def list_models(self, request: Request) -> Response:
        """Every model that is served, and that the tenant may use."""
        tenant = await self._tenant(request)
        try:
            models = [each for each in self._served.models() if tenant.may_use(each.name)]
        except EngineNotReadyError as error:
            raise from_engine(error, self._retry_after_s) from None
        return json_response({"object": "list", "data": [self._model(model, tenant) for model in models]})

    async def get_model(self, request: Request, model: str) -> Response:
        """One model, or 404 `model_not_found`."""
        tenant = await self._tenant(request)
        try:
            self._served.find(model, tenant)
            found = next(each for each in self._served.models() if each.name == model)
        except EngineNotReadyError as error:
            raise from_engine(error, self._retry_after_s) from None
        return json_response(self._model(found, tenant))

    async def health(self) -> Response:
        """The process is alive; says nothing about the model."""
        return json_response({"status": "ok"})

    async def ready(self) -> Response:
        """200 only while a generation would be taken."""
        health = await self._served.health()
        if not health.ready:
            raise not_ready(health.detail, self._retry_after_s)
        return json_response({"status": "ready"})

    async def _tenant(self, request: Request) -> Tenant:
        record = record_of(request.scope)
        record.tenant = UNKNOWN
        record.tenant = await self._tenants().authenticate(request.scope["headers"])
        return record.tenant

    def _model(self, model: ServedModel, tenant: Tenant) -> dict[str, Any]:
        known = {} if model.context_length is None else {"max_model_len": model.context_length}
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": OWNER,
            **known,
            **({FACTS: facts_of(self._served, model.name, tenant)} if tenant.gateway else {}),
        }
