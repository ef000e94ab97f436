"""Anthropic's messages API."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.paths import MESSAGE_PATHS
from engine_adapters.remote.relay import RemoteCapabilities, Route

VERSION = "2023-06-01"  # of the API, which every request must name


class AnthropicEngine(OpenAICompatibleEngine):
    """Relays `/v1/messages`; usage comes at the start of a stream and is completed at its end."""

    paths: ClassVar[Mapping[Route, str]] = MESSAGE_PATHS

    usual_headers: ClassVar[Mapping[str, str]] = {"anthropic-version": VERSION}

    def __init__(
        self, name: str, base_url: str, models: Sequence[str] = (), options: HttpOptions | None = None
    ) -> None:
        super().__init__(name, base_url, models, options, "anthropic")

    async def detect(self) -> RemoteCapabilities:
        models = self.models or await self._served_models()
        return RemoteCapabilities(models=models, reports_reuse=True, takes_salt=False, kv_events=False)
