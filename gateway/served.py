"""The model behind the HTTP surface: absent while it loads, then one engine and its prompt tokenizer."""

from dataclasses import dataclass

from engine_adapters.base import Capabilities, EngineAdapter, Health
from engine_adapters.errors import EngineNotReadyError
from gateway.errors import ApiError
from gateway.prompts import PromptSource


@dataclass(frozen=True, slots=True)
class Backend:
    """One engine with what makes its prompts."""

    engine: EngineAdapter
    prompts: PromptSource

    def capabilities(self) -> Capabilities:
        """What the engine can do; raises EngineNotReadyError before it is known."""
        return self.engine.capabilities()


class Served:
    """What is served now. Set from the event loop, by whoever loads the engine."""

    def __init__(self, backend: Backend | None = None) -> None:
        self._backend = backend
        self._detail = "the model is being loaded"

    def put(self, backend: Backend) -> None:
        """Serve `backend` from now on."""
        self._backend = backend

    def withdraw(self, detail: str) -> Backend | None:
        """Refuse new requests from now on; `detail` says why, in words for an operator. Running ones go on."""
        backend, self._backend = self._backend, None
        self._detail = detail
        return backend

    def current(self) -> Backend:
        """The backend; raises EngineNotReadyError while there is none."""
        if self._backend is None:
            raise EngineNotReadyError(self._detail)
        return self._backend

    def find(self, model: str) -> Backend:
        """The backend of `model`; raises EngineNotReadyError, or ApiError 404 for another name."""
        backend = self.current()
        able = backend.capabilities()
        if model != able.model:
            message = f"The model '{model[:200]}' does not exist here; this server has '{able.model}'."
            raise ApiError(404, message, param="model", code="model_not_found")
        return backend

    async def health(self) -> Health:
        """Whether a generation would be taken now."""
        if self._backend is None:
            return Health(ready=False, detail=self._detail)
        return await self._backend.engine.health()
