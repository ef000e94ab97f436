"""Any API in OpenAI's shapes, hosted ones among them: what differs is how usage is named."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from engine_adapters.base import Health
from engine_adapters.remote.http_engine import HttpEngine, HttpOptions
from engine_adapters.remote.paths import CHANGED_PATHS, SELF_HOSTED_PATHS
from engine_adapters.remote.relay import RemoteCapabilities, Route
from engine_adapters.reuse.profiles import PROFILES

# Profiles of APIs that never say what they reused.
_SILENT = ("ollama",)


class OpenAICompatibleEngine(HttpEngine):
    """`profile` names one of `PROFILES`; whether the API reports is known from it, or from the first answer.

    Every route is passed on: which of them there are is for the API itself to say.
    """

    paths: ClassVar[Mapping[Route, str]] = {**SELF_HOSTED_PATHS, **CHANGED_PATHS}

    def __init__(
        self,
        name: str,
        base_url: str,
        models: Sequence[str] = (),
        options: HttpOptions | None = None,
        profile: str = "openai",
    ) -> None:
        super().__init__(name, base_url, PROFILES[profile], models, options)

    async def detect(self) -> RemoteCapabilities:
        models = self.models or await self._served_models()
        reports = False if self._profile.name in _SILENT else None
        return RemoteCapabilities(models=models, reports_reuse=reports, takes_salt=False, kv_events=False)

    async def counters(self) -> Mapping[str, float]:
        """A hosted API has none."""
        return {}

    async def health(self) -> Health:
        """APIs that list no models are asked nothing else, since a generation costs money."""
        return Health(True, "not asked", known=False) if self.models else await super().health()
