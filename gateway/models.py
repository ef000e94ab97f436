"""GET /v1/models and /v1/models/{id}, /health and /ready."""

import time
from typing import Any

from starlette.responses import Response

from engine_adapters.errors import EngineNotReadyError
from gateway.errors import from_engine, not_ready
from gateway.served import Served, ServedModel
from gateway.settings import GatewaySettings
from gateway.transport.answer import json_response


class ModelRoutes:
    """What can be asked without generating anything."""

    def __init__(self, served: Served, settings: GatewaySettings) -> None:
        self._served = served
        self._retry_after_s = settings.retry_after_s
        self._created = int(time.time())

    async def list_models(self) -> Response:
        """Every model that is served."""
        try:
            models = self._served.models()
        except EngineNotReadyError as error:
            raise from_engine(error, self._retry_after_s) from None
        return json_response({"object": "list", "data": [self._model(model) for model in models]})

    async def get_model(self, model: str) -> Response:
        """One model, or 404 `model_not_found`."""
        try:
            self._served.find(model)
            found = next(each for each in self._served.models() if each.name == model)
        except EngineNotReadyError as error:
            raise from_engine(error, self._retry_after_s) from None
        return json_response(self._model(found))

    async def health(self) -> Response:
        """The process is alive; says nothing about the model."""
        return json_response({"status": "ok"})

    async def ready(self) -> Response:
        """200 only while a generation would be taken."""
        health = await self._served.health()
        if not health.ready:
            raise not_ready(health.detail, self._retry_after_s)
        return json_response({"status": "ready"})

    def _model(self, model: ServedModel) -> dict[str, Any]:
        known = {} if model.context_length is None else {"max_model_len": model.context_length}
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "kvgate",
            **known,
        }
