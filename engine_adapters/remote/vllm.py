"""vLLM's server: what it can, how it is told apart by salt, and how its cache is forgotten."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from engine_adapters.base import Tier
from engine_adapters.errors import EngineFailureError, EngineNotReadyError, UnsupportedByEngineError
from engine_adapters.remote import event_publishers
from engine_adapters.remote.http_engine import HttpEngine, HttpOptions
from engine_adapters.remote.paths import SELF_HOSTED_PATHS
from engine_adapters.remote.prometheus import labelled
from engine_adapters.remote.relay import EventPublisher, RemoteCapabilities, Route, adapters_in
from engine_adapters.remote.reuse_counters import ReuseCounters, label_value, vllm_reuse
from engine_adapters.reuse.profiles import PROFILES, read_usage

DETAILS_FLAG = "--enable-prompt-tokens-details: every answer then says how many prompt tokens were cached"
CACHING_FLAG = "--enable-prefix-caching: without it nothing is reused"

_CONFIG = "vllm:cache_config_info"
_PROBE_ID = 1  # a token id that every vocabulary has
_PROBE_SALT = "kvgate probe"
_DEFAULT_BLOCK = 16  # tokens; vLLM's own default
_PROBE_WAIT_S = 60.0  # a token's: the first one after a start, or behind others in the queue, takes its time


class VllmEngine(HttpEngine):
    """Relays to vLLM's OpenAI routes.

    `probe`: at registration one or two generations of a single token find out whether the server reports what it
    cached. Without them that is not known before its first answer.
    """

    paths: ClassVar[Mapping[Route, str]] = SELF_HOSTED_PATHS
    salted: ClassVar[Collection[Route]] = (
        "chat", "completions", "responses", "messages", "embeddings", "rerank",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        base_url: str,
        models: Sequence[str] = (),
        options: HttpOptions | None = None,
        probe: bool = True,
    ) -> None:
        super().__init__(name, base_url, PROFILES["vllm"], models, options)
        self._probe = probe

    async def detect(self) -> RemoteCapabilities:
        cards = await self._cards()
        models = self.models or tuple(cards)
        counters = await self._known_counters()
        config = _cache_config(counters)
        block = _number(config.get("block_size"))
        caching = config.get("enable_prefix_caching", "True") == "True"
        reports = await self._reports(models, block, caching) if self._probe else None
        missing = [CACHING_FLAG] if not caching else []
        missing += [DETAILS_FLAG] if reports is False else []
        tiers = vllm_reuse(counters).by_tier
        publishers = await self._publishers()
        return RemoteCapabilities(
            models=models,
            reports_reuse=reports,
            missing=tuple(missing),
            block_size=block,
            context_length=_shortest(cards, models),
            tiers=_tiers(tiers),
            takes_salt=(await self.api()).takes("cache_salt"),
            takes_token_ids=True,
            kv_events=None if publishers is None else bool(publishers),
            publishers=publishers or (),
            adapters=adapters_in(cards.values()),
            version=await self._version(),
        )

    async def reuse_counters(self) -> ReuseCounters:
        """What the engine itself counted; raises EngineNotReadyError where it cannot be asked."""
        return vllm_reuse(await self.counters())

    @property
    def health_url(self) -> str:
        return f"{self.server}/health"

    async def flush(self) -> None:
        """Forget the device's prefixes; what a connector keeps for several engines stays."""
        url = f"{self.server}/reset_prefix_cache"
        answer = await self.answer_of("POST", url)
        if answer.status_code in (404, 405):
            raise UnsupportedByEngineError(
                f"The engine {self.name} offers no reset of its cache: start vLLM with VLLM_SERVER_DEV_MODE=1, "
                "on a network that only operators reach, or restart it."
            )
        if answer.status_code >= 400 or b"false" in answer.content:
            raise EngineFailureError(
                f"The engine {self.name} did not reset its cache ({answer.status_code}): running requests hold "
                "blocks, or blocks are on their way to another tier. Try again when it is idle."
            )

    async def _cards(self) -> dict[str, Mapping[str, Any]]:
        listed = (await self.ask("GET", f"{self._root}/models")).get("data")
        cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
        return {card["id"]: card for card in cards if isinstance(card.get("id"), str)}

    async def _known_counters(self) -> Mapping[str, float]:
        """Empty where metrics are off: detection goes on without them."""
        try:
            return await self.counters()
        except EngineNotReadyError:
            return {}

    async def _version(self) -> str | None:
        try:
            version = (await self.ask("GET", f"{self.server}/version")).get("version")
        except EngineNotReadyError:
            return None
        return version if isinstance(version, str) else None

    async def _publishers(self) -> tuple[EventPublisher, ...] | None:
        """Of KV events; None: an older server that does not say."""
        try:
            sources = await self.ask("GET", f"{self.server}/kv_event_sources")
        except EngineNotReadyError:
            return None
        return event_publishers.of_vllm(sources)

    async def _reports(self, models: Sequence[str], block: int | None, caching: bool) -> bool | None:
        """Whether usage says what was cached. Older servers leave out a zero, so the second try must hit."""
        if not models:
            return None
        prompt = [_PROBE_ID] * ((block or _DEFAULT_BLOCK) + 1)
        for _ in range(2 if caching else 1):
            body = {"model": models[0], "prompt": prompt, "max_tokens": 1, "cache_salt": _PROBE_SALT}
            try:
                url = f"{self._root}/completions"
                answer = await self.ask("POST", url, json=body, timeout=_PROBE_WAIT_S)
            except EngineNotReadyError:
                return None  # it serves no completions
            if read_usage(self._profile, answer).reuse.reused is not None:
                return True
        return False


def _cache_config(counters: Mapping[str, float]) -> Mapping[str, str]:
    """The cache's settings, which vLLM publishes as labels; of several engines behind one address the first's."""
    for labels in labelled(counters, _CONFIG):
        names = ("block_size", "enable_prefix_caching")
        return {name: value for name in names if (value := label_value(labels, name)) is not None}
    return {}


def _tiers(counted: Mapping[Tier, int] | None) -> tuple[Tier, ...]:
    return () if counted is None else tuple(counted)


def _shortest(cards: Mapping[str, Mapping[str, Any]], models: Sequence[str]) -> int | None:
    lengths = [cards[name].get("max_model_len") for name in models if name in cards]
    return min((length for length in lengths if isinstance(length, int)), default=None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
