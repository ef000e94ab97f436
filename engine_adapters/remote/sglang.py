"""SGLang's server over its OpenAI routes: what it can, tiers asked for with every answer, salts, flush."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from engine_adapters.base import Tier
from engine_adapters.errors import EngineFailureError, EngineNotReadyError
from engine_adapters.remote import event_publishers
from engine_adapters.remote.http_engine import HttpEngine, HttpOptions
from engine_adapters.remote.paths import SELF_HOSTED_PATHS
from engine_adapters.remote.relay import (
    RelayRequest,
    RemoteCapabilities,
    Rewrite,
    Rewrites,
    Route,
    adapters_in,
)
from engine_adapters.remote.reuse_counters import ReuseCounters, sglang_reuse
from engine_adapters.reuse.profiles import PROFILES
from engine_adapters.reuse.reading import UsageRead

REPORT_FLAG = "--enable-cache-report: every answer then says how many prompt tokens were cached"
RADIX_FLAG = "no --disable-radix-cache: with it nothing is reused"
METRICS_FLAG = "--enable-metrics: the engine's own counters, which reports are checked against"

_DETAILS = "return_cached_tokens_details"
_DETAILED = ("chat", "completions")  # routes that take it


class SGLangEngine(HttpEngine):
    """Relays to SGLang's OpenAI routes.

    Tiers are asked for upstream with every request; what the client did not ask for does not reach it.
    """

    paths: ClassVar[Mapping[Route, str]] = SELF_HOSTED_PATHS
    salted: ClassVar[Collection[Route]] = (
        "chat",
        "completions",
        "responses",
    )  # the others have no field for it

    def __init__(
        self, name: str, base_url: str, models: Sequence[str] = (), options: HttpOptions | None = None
    ) -> None:
        super().__init__(name, base_url, PROFILES["sglang"], models, options)

    async def detect(self) -> RemoteCapabilities:
        return await self.detected(await self.server_info())

    async def detected(self, info: Mapping[str, Any]) -> RemoteCapabilities:
        """What the server is and can, by its settings and what else it says."""
        listed = (await self.ask("GET", f"{self._root}/models")).get("data")
        cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
        models = self.models or tuple(card["id"] for card in cards if isinstance(card.get("id"), str))
        version = info.get("version")
        publishers = event_publishers.of_sglang(info)
        return RemoteCapabilities(
            models=models,
            reports_reuse=_flag(info, "enable_cache_report"),
            missing=_missing(info),
            block_size=_whole(info.get("page_size")),
            context_length=_context(info, cards),
            tiers=tiers_of(info),
            takes_salt=(await self.api()).takes("cache_salt"),
            takes_token_ids=True,
            kv_events=bool(publishers) if "kv_events_config" in info else None,
            publishers=publishers,
            adapters=adapters_in(cards),
            version=version if isinstance(version, str) else None,
        )

    async def server_info(self) -> Mapping[str, Any]:
        """Settings and state; older servers know it by another name."""
        try:
            return await self.ask("GET", f"{self.server}/server_info")
        except EngineNotReadyError:
            return await self.ask("GET", f"{self.server}/get_server_info")

    def upstream_values(self, request: RelayRequest) -> dict[str, bytes]:
        values = super().upstream_values(request)
        if request.route in _DETAILED:
            values[_DETAILS] = b"true"
        return values

    def rewrites(self, request: RelayRequest, given: Rewrites) -> Rewrites:
        given = super().rewrites(request, given)
        if request.route not in _DETAILED or request.fields().get(_DETAILS):
            return given
        return replace(given, usage=without_details(given.usage))

    async def reuse_counters(self) -> ReuseCounters:
        """What the engine itself counted; raises EngineNotReadyError where metrics are off."""
        return sglang_reuse(await self.counters())

    @property
    def health_url(self) -> str:
        return f"{self.server}/health"

    async def flush(self) -> None:
        url = f"{self.server}/flush_cache"
        answer = await self.answer_of("POST", url)
        if answer.status_code >= 400:
            raise EngineFailureError(
                f"The engine {self.name} did not flush its cache ({answer.status_code}): requests run or wait. "
                "Try again when it is idle."
            )


def without_details(inner: Rewrite | None) -> Rewrite:
    """Takes `sglext`, which was asked for upstream only, out of what goes to the client."""

    def take_out(payload: dict[str, Any], read: UsageRead) -> Mapping[str, Any] | None:
        if "sglext" not in payload:
            return payload if inner is None else inner(payload, read)
        if not payload.get("usage") and not payload.get("choices"):
            return None  # a chunk that holds nothing else
        left = {key: value for key, value in payload.items() if key != "sglext"}
        return left if inner is None else inner(left, read)

    return take_out


def tiers_of(info: Mapping[str, Any]) -> tuple[Tier, ...]:
    """Tiers that the server's settings speak of."""
    tiers: list[Tier] = ["device"]
    if info.get("enable_hierarchical_cache"):
        tiers.append("host")
        backend = info.get("hicache_storage_backend")
        if backend:
            tiers.append("disk" if backend == "file" else "store")
    return tuple(tiers)


def _missing(info: Mapping[str, Any]) -> tuple[str, ...]:
    missing = [RADIX_FLAG] if info.get("disable_radix_cache") else []
    missing += [REPORT_FLAG] if info.get("enable_cache_report") is False else []
    return (*missing, METRICS_FLAG) if info.get("enable_metrics") is False else tuple(missing)


def _flag(info: Mapping[str, Any], name: str) -> bool | None:
    """A setting; None where this server does not speak of it."""
    value = info.get(name)
    return value if isinstance(value, bool) else None


def _context(info: Mapping[str, Any], cards: Sequence[Mapping[str, Any]]) -> int | None:
    said = _whole(info.get("context_length"))
    lengths = [length for card in cards if (length := _whole(card.get("max_model_len"))) is not None]
    return said if said is not None else min(lengths, default=None)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
