"""`engines:` in the configuration file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from engine_adapters.embedded.cold_config import swept_by_nobody
from engine_adapters.reuse.profiles import PROFILES
from gateway.config.base import ConfigModel
from gateway.config.cold import ColdConfig, Size, StoreConfig, WatermarksConfig
from gateway.config.kv_events import KvEventsConfig
from gateway.config.replicas import FoundReplicas, ReplicatedEngine
from gateway.config.secret_ref import SecretRef
from gateway.kv_events.options import apart
from gateway.tenants.names import PATTERN, checked_name

Name = Annotated[str, AfterValidator(checked_name), WithJsonSchema({"type": "string", "pattern": PATTERN})]
HostPattern = Annotated[str, Field(pattern=r"^[a-z0-9*?.:_-]{1,253}$")]
ClientField = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,64}$")]
# Requests at one replica at once; others wait here, and tenants take turns. None: as many as it takes.
MaxRunning = Annotated[int | None, Field(default=None, ge=1, le=1 << 20)]


class OtherAdmin(ConfigModel):
    """The admin app of another kvgate, on the host of its URL."""

    port: Annotated[int, Field(ge=1, le=65535)] = 8001
    key: SecretRef


class EmbeddedEngine(ConfigModel):
    """The engine in this process; every key is the option of `kvgate serve` of that name."""

    kind: Literal["embedded"]
    name: Name = "embedded"
    model: str | None = None
    served_model_name: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    kv_cache_gib: Size | None = None
    host_cache_gib: Annotated[float, Field(ge=0, le=1 << 20)] = 0
    disk_cache_dir: Path | None = None
    disk_cache_gib: Size = 8
    cold: ColdConfig = ColdConfig()
    store: StoreConfig | None = None
    watermarks: WatermarksConfig = WatermarksConfig()
    # When a block is copied below the device: at its second use, at its eviction, or never.
    write_policy: Literal["write_through_on_second_hit", "write_back", "none"] = "write_through_on_second_hit"
    # MiB a second at most that go down to the disk, and to the store; none: as fast as they take it.
    cold_write_mib_s: Annotated[float, Field(gt=0, le=1 << 20)] | None = None
    block_size: Annotated[int, Field(ge=1, le=1024)] = 16
    # Of each tier: what one group's prompts of a model may hold, or keep by hints, before they make room for others.
    scope_share: Annotated[float, Field(ge=0, le=1)] = 0.25
    threads: Annotated[int, Field(ge=1)] | None = None
    chat_template: Path | None = None
    control_tokens_in_content: Literal["allow", "report", "reject"] = "report"
    tool_parser: str | None = None
    trust_remote_code: bool = False
    max_running: MaxRunning

    @model_validator(mode="after")
    def _through_the_host(self) -> "EmbeddedEngine":
        if self.disk_cache_dir is not None and not self.host_cache_gib:
            raise ValueError("disk_cache_dir needs host_cache_gib: blocks reach the disk through main memory")
        if self.store is not None and not self.host_cache_gib:
            raise ValueError("store needs host_cache_gib: blocks reach it through main memory")
        return self

    @model_validator(mode="after")
    def _swept(self) -> "EmbeddedEngine":
        folder, mooncake = (None, None) if self.store is None else (self.store.folder, self.store.mooncake)
        for tier in self.watermarks.written:
            why = swept_by_nobody(
                tier, self.host_cache_gib, self.disk_cache_dir, folder, mooncake is not None
            )
            if why is not None:
                raise ValueError(f"watermarks.{tier} would count for nothing: {why}")
        return self

    @property
    def names_key(self) -> str:
        """The key that says `client_names`."""
        return "served_model_name"

    def client_names(self) -> list[str]:
        """Model names that the file says."""
        return [] if self.served_model_name is None else [self.served_model_name]


class SGLangProcessEngine(ConfigModel):
    """SGLang in a process of its own, started and watched by this one."""

    kind: Literal["sglang_process"]
    name: Name = "sglang"
    python: Path  # the interpreter that SGLang is installed for
    model: Path  # a folder
    served_model_name: str | None = None
    arguments: Annotated[
        dict[str, Any], Field(default_factory=dict)
    ]  # of `sglang.Engine`, by their Python names
    control_tokens_in_content: Literal["allow", "report", "reject"] = "report"
    tool_parser: str | None = None
    start_s: Annotated[float, Field(gt=0, le=86400)] = 1800.0
    max_requests: Annotated[int, Field(ge=1, le=65536)] = 1024
    max_running: MaxRunning

    @property
    def names_key(self) -> str:
        """The key that says `client_names`."""
        return "served_model_name" if self.served_model_name else "model"

    def client_names(self) -> list[str]:
        """Model names that the file says."""
        return [self.served_model_name or self.model.name]


class RemoteEngine(ReplicatedEngine):
    """What all engines behind HTTP have."""

    name: Name
    # Names, or what clients say -> the engine's own name; none: as the engine lists them.
    models: Annotated[list[str] | dict[str, str], Field(default_factory=list)]
    key: SecretRef | None = None
    connect_s: Annotated[float, Field(gt=0, le=600)] = 5.0
    first_byte_s: Annotated[float, Field(gt=0, le=86400)] = 600.0  # a long prompt on a busy engine
    max_connections: Annotated[int, Field(ge=1, le=65536)] = 1024
    max_running: MaxRunning
    tokenizer: Path | None = None  # a folder with the model's tokenizer.json
    # Looked for only with a tokenizer; what they do is for the engine's own to say.
    control_tokens_in_content: Literal["allow", "report", "reject"] = "report"

    cache_tokens: Annotated[int | None, Field(ge=1, default=None)]  # KV of one replica; none: it is learned
    # Whether groups of tenants may reuse each other's prefixes here.
    shared_cache: bool = False
    # Hosts that URLs in bodies may name, which this engine then fetches: names and patterns; *: all.
    url_hosts: Annotated[list[HostPattern], Field(default_factory=list)]
    # Fields that clients may send although the gateway refuses them elsewhere.
    client_fields: Annotated[list[ClientField], Field(default_factory=list)]

    @field_validator("control_tokens_in_content")
    @classmethod
    def _known_tokens(cls, action: str, info: ValidationInfo) -> str:
        # A tokenizer that is wrong in itself is not there, and has a message of its own.
        if action == "reject" and info.data.get("tokenizer", ...) is None:
            raise ValueError("reject needs tokenizer, a folder with the tokenizer.json of the engine's model")
        return action

    @property
    def names_key(self) -> str:
        """The key that says `client_names`."""
        return "models"

    def client_names(self) -> list[str]:
        """Model names that the file says."""
        return list(self.models)

    def names(self) -> dict[str, str]:
        """What clients say -> the engine's own name; empty: as the engine lists."""
        return self.models if isinstance(self.models, dict) else {name: name for name in self.models}


class SelfHosted(RemoteEngine):
    """An engine with an adapter of its own."""

    kind: Literal["sglang", "vllm", "llama_cpp"]
    probe: bool = (
        True  # vLLM: may be asked for a token or two at the start, to find out whether it reports reuse
    )
    # SGLang: prompts go as token ids made here, completions to `/generate`.
    native: bool = False
    kv_events: KvEventsConfig | None = None  # None: what replicas hold is learned from their answers

    @model_validator(mode="after")
    def _native_where_there_is_one(self) -> "SelfHosted":
        if self.native and self.kind != "sglang":
            raise ValueError("native: only SGLang has such a route")
        if self.native and self.tokenizer is None:
            raise ValueError("native: prompts go as token ids, which are made here: write tokenizer, too")
        return self

    @model_validator(mode="after")
    def _events_of_use(self) -> "SelfHosted":
        events = self.kv_events
        if events is None:
            return self
        if self.kind == "llama_cpp":
            raise ValueError("kv_events: llama.cpp publishes none")
        if self.tokenizer is None:
            raise ValueError("kv_events: they name blocks by their tokens: write tokenizer, too")
        several = isinstance(self.replicas, FoundReplicas) or len(self.replicas or ()) > 1
        given = (events.endpoint, events.replay_endpoint)
        if several and any(each is not None and not apart(each) for each in given):
            raise ValueError(
                "kv_events: replicas need addresses of their own: write {host} into them, or port"
            )
        return self


class OpenAICompatible(RemoteEngine):
    """Any API in OpenAI's shapes; `profile` says how it names usage."""

    kind: Literal["openai"]
    profile: str = "openai"

    @field_validator("profile")
    @classmethod
    def _known(cls, profile: str) -> str:
        if profile not in PROFILES:
            raise ValueError(f"there are {', '.join(sorted(PROFILES))}")
        return profile


class AnotherKvgate(RemoteEngine):
    """Another kvgate, which believes this one for whom it asks: it has `gateway: true` at the tenant of `key`."""

    kind: Literal["kvgate"]
    admin: OtherAdmin | None = None  # None: tenants cannot be forgotten there


class Anthropic(RemoteEngine):
    """Anthropic's messages API."""

    kind: Literal["anthropic"]


EngineConfig: TypeAlias = Annotated[
    EmbeddedEngine | SGLangProcessEngine | SelfHosted | AnotherKvgate | OpenAICompatible | Anthropic,
    Field(discriminator="kind"),
]


def check_names(engines: Sequence[EngineConfig]) -> None:
    """Refuse two engines of one name, and a model that two of them have; raises ValueError."""
    names: dict[str, str] = {}  # each with the key that says it
    models: dict[str, str] = {}
    for place, engine in enumerate(engines):
        at = f"engines[{place}]"
        if (key := names.setdefault(engine.name, f"{at}.name")) != f"{at}.name":
            raise ValueError(f"{at}.name: {engine.name!r} is {key}, too")
        for model in engine.client_names():
            if model in models:
                raise ValueError(
                    f"{at}.{engine.names_key}: the model {model!r} stands in {models[model]}, too: clients could "
                    "not say which one they want"
                )
            models[model] = f"{at}.{engine.names_key}"
