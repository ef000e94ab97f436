"""From a checked configuration to engines, and to what the gateway is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from canon.errors import ModelFolderError
from canon.memory import LocalStore
from canon.tokens import ControlTokenScanner, PromptTokenizer
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.remote.anthropic import AnthropicEngine
from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.kvgate import AdminDoor, KvgateEngine
from engine_adapters.remote.llama_cpp import LlamaCppEngine
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from engine_adapters.remote.relay import RelayEngine
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.remote.vllm import VllmEngine
from engine_adapters.sglang_process.config import SGLangConfig
from gateway.canonical.policies import parse_policy
from gateway.config.discovery import discovery_of
from gateway.config.engines import (
    AnotherKvgate,
    Anthropic,
    EmbeddedEngine,
    OpenAICompatible,
    RemoteEngine,
    SelfHosted,
    SGLangProcessEngine,
)
from gateway.config.errors import ConfigError
from gateway.config.extras import lacking, need
from gateway.config.isolation import must_salt
from gateway.config.model import Config
from gateway.config.replicas import addresses_of
from gateway.config.routing import RoutingConfig
from gateway.config.tenants import keyed
from gateway.kv_events.options import KvEventOptions
from gateway.local.embedded import EmbeddedOptions, embedded_prompts, load_embedded, missing_packages
from gateway.local.sglang_process import SGLangOptions, sglang_prompts, start_sglang
from gateway.process.shared import Shared
from gateway.prompts import PromptSource
from gateway.relay.control_tokens import ControlTokenCheck
from gateway.relay.guard import OPEN_GUARD, Guard
from gateway.relay.remote import Remote
from gateway.replicas.address import ReplicaAddress
from gateway.replicas.pool import EnginePool, MakeReplica
from gateway.routing.policies import router_of
from gateway.routing.prompt_tokens import PromptTokens
from gateway.routing.router import Router
from gateway.served import Load
from gateway.settings import MIB, CanonSettings, GatewaySettings
from gateway.sglang_native.engine import SGLangNativeEngine
from gateway.telemetry.otel.options import OtelOptions, OtelOptionsError, otel_options
from gateway.tenants.authenticator import OPEN, Authenticator

_GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class MadeFrom:
    """What a pool is made from beside its own part of the file; while nothing of both changes, it stays what it is."""

    guard: Guard = OPEN_GUARD
    routing: RoutingConfig = field(default_factory=RoutingConfig)


def made_from(engine: RemoteEngine, config: Config) -> MadeFrom:
    """What `config` says outside of `engine` that counts there."""
    return MadeFrom(guard_of(engine, config), config.routing)


def pool_of(
    engine: RemoteEngine,
    path: str,
    environ: Mapping[str, str],
    more: MadeFrom | None = None,
    router: Router | None = None,
) -> EnginePool:
    """One engine behind HTTP, not asked yet. `router`: one that knows its replicas already.

    Raises:
        ConfigError: a key is not where it should be, or a tokenizer cannot be used; the message names `path`.
    """
    more = more or MadeFrom()
    make, given = _maker(engine, path, environ), engine.replicas
    pool = partial(
        EnginePool,
        engine.name,
        router=router or router_of(more.routing.of(engine.cache_tokens)),
        policy=engine.policy(),
        guard=more.guard,
        tokens=_prompt_tokens(engine, path),
        events=_events(engine, f"{path}.kv_events"),
    )
    if engine.url is not None:
        return pool([make(ReplicaAddress("", engine.url))])
    if isinstance(given, list):
        return pool([make(each) for each in addresses_of(given)])
    assert given is not None
    return pool(discovery=discovery_of(given, f"{path}.replicas", environ), make=make, names=engine.names())


def guard_of(engine: RemoteEngine, config: Config) -> Guard:
    """What requests may ask of this engine, which depends on the tenants there are, too."""
    return Guard(
        apart=must_salt(engine, config.tenants, config.aliases),
        url_hosts=frozenset(engine.url_hosts),
        client_fields=frozenset(engine.client_fields),
    )


def authenticator_of(config: Config, environ: Mapping[str, str]) -> Authenticator:
    """Who tells tenants apart; raises ConfigError where a secret or the file of keys cannot be used."""
    if not config.tenants:
        return OPEN
    tokens = None if config.jwt is None else config.jwt.verifier()
    return keyed(
        config.tenants, config.keys_file, config.salt_secret, environ, tokens, limits=config.limits.over()
    )


def _maker(engine: RemoteEngine, path: str, environ: Mapping[str, str]) -> MakeReplica:
    key = None if engine.key is None else engine.key.read(f"{path}.key", environ)
    options = HttpOptions(
        connect_s=engine.connect_s,
        first_byte_s=engine.first_byte_s,
        max_connections=engine.max_connections,
        headers=_key_headers(engine, key),
    )
    own = tuple(dict.fromkeys(engine.names().values()))
    check = _control_tokens(engine, path)

    admin = _admin_key(engine, path, environ)
    prompts = _native_prompts(engine, path)

    def make(address: ReplicaAddress) -> Remote:
        adapter = _adapter(engine, address.url, own, options, admin, prompts)
        replica = f"{engine.name}/{address.name}" if address.name else None
        return Remote(adapter, engine.names(), check, replica, engine.health.look(), engine.cache_tokens)

    return make


def _control_tokens(engine: RemoteEngine, path: str) -> ControlTokenCheck | None:
    action = engine.control_tokens_in_content
    if engine.tokenizer is None:
        return None
    try:
        scanner = ControlTokenScanner.from_folder(engine.tokenizer)
    except ModelFolderError as error:
        raise ConfigError(f"{path}.tokenizer: {error}") from None
    return None if action == "allow" else ControlTokenCheck(scanner, action)


def _prompt_tokens(engine: RemoteEngine, path: str) -> PromptTokens | None:
    """What makes this engine's prompts here, too; None: nothing says how."""
    if engine.tokenizer is None:
        return None
    # Where these ids go to the engine, typed special tokens act in them only if the operator lets them.
    typed = engine.control_tokens_in_content if _is_native(engine) else "report"
    tokenizer = _tokenizer(engine.tokenizer, path, "report" if typed == "reject" else typed)
    return PromptTokens(tokenizer, tokenizer.vocabulary)


def _tokenizer(folder: Path, path: str, typed: Literal["allow", "report"]) -> PromptTokenizer:
    try:
        # Special tokens that somebody wrote are what `_control_tokens` looks for.
        return PromptTokenizer.from_folder(folder, control_tokens_in_content=typed, tells_written=False)
    except ModelFolderError as error:
        raise ConfigError(f"{path}.tokenizer: {error}") from None


def _is_native(engine: RemoteEngine) -> bool:
    return isinstance(engine, SelfHosted) and engine.native


def _native_prompts(engine: RemoteEngine, path: str) -> PromptTokenizer | None:
    """What is compared with the engine's own prompts, where those made here may take their place."""
    if not _is_native(engine) or engine.tokenizer is None:
        return None
    return _tokenizer(engine.tokenizer, path, "allow")


def _events(engine: RemoteEngine, path: str) -> KvEventOptions | None:
    """Where its replicas publish what they hold; None: they do not."""
    if not isinstance(engine, SelfHosted) or engine.kv_events is None:
        return None
    return engine.kv_events.options(path, engine.kind)


def _key_headers(engine: RemoteEngine, key: str | None) -> dict[str, str]:
    if key is None:
        return {}
    return {"x-api-key": key} if isinstance(engine, Anthropic) else {"authorization": f"Bearer {key}"}


def _admin_key(engine: RemoteEngine, path: str, environ: Mapping[str, str]) -> str | None:
    if not isinstance(engine, AnotherKvgate) or engine.admin is None:
        return None
    return engine.admin.key.read(f"{path}.admin.key", environ)


def _admin_door(engine: AnotherKvgate, url: str, key: str | None) -> AdminDoor | None:
    """On the host of its URL, so that each replica has its own."""
    if engine.admin is None or key is None:
        return None
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return AdminDoor(f"{parts.scheme}://{host}:{engine.admin.port}", key)


def _adapter(
    engine: RemoteEngine,
    url: str,
    models: tuple[str, ...],
    options: HttpOptions,
    admin_key: str | None = None,
    prompts: PromptTokenizer | None = None,
) -> RelayEngine:
    if isinstance(engine, Anthropic):
        return AnthropicEngine(engine.name, url, models, options)
    if isinstance(engine, AnotherKvgate):
        return KvgateEngine(engine.name, url, models, options, _admin_door(engine, url, admin_key))
    if isinstance(engine, OpenAICompatible):
        return OpenAICompatibleEngine(engine.name, url, models, options, engine.profile)
    assert isinstance(engine, SelfHosted)
    if engine.kind == "vllm":
        return VllmEngine(engine.name, url, models, options, engine.probe)
    if engine.native:
        return SGLangNativeEngine(engine.name, url, models, options, prompts)
    own = SGLangEngine if engine.kind == "sglang" else LlamaCppEngine
    return own(engine.name, url, models, options)


def embedded_options(engine: EmbeddedEngine, path: str, environ: Mapping[str, str]) -> EmbeddedOptions:
    """What the embedded engine is told.

    Raises:
        ConfigError: a secret is not where it should be; its key begins with `path`.
    """
    config = EmbeddedConfig(
        model=engine.model,
        served_name=engine.served_model_name,
        device=engine.device,
        dtype=engine.dtype,
        kv_bytes=None if engine.kv_cache_gib is None else int(engine.kv_cache_gib * _GIB),
        block_size=engine.block_size,
        scope_share=engine.scope_share,
        host_cache_bytes=int(engine.host_cache_gib * _GIB),
        disk_cache_dir=engine.disk_cache_dir,
        disk_cache_bytes=int(engine.disk_cache_gib * _GIB),
        store=None if engine.store is None else engine.store.shared(f"{path}.store", environ),
        coding=engine.cold.coding(f"{path}.cold", environ),
        watermarks=engine.watermarks.written,
        write_policy=engine.write_policy,
        cold_write_rate=None if engine.cold_write_mib_s is None else engine.cold_write_mib_s * MIB,
        threads=engine.threads,
        trust_remote_code=engine.trust_remote_code,
        tool_parser=engine.tool_parser,
    )
    return EmbeddedOptions(config, engine.chat_template, engine.control_tokens_in_content, engine.name)


def sglang_options(engine: SGLangProcessEngine) -> SGLangOptions:
    """What SGLang in a process of its own is told."""
    config = SGLangConfig(
        python=engine.python,
        model=engine.model,
        served_name=engine.served_model_name,
        engine=engine.arguments,
        tool_parser=engine.tool_parser,
        start_s=engine.start_s,
        max_requests=engine.max_requests,
    )
    return SGLangOptions(config, engine.name, engine.control_tokens_in_content)


def load_of(config: Config, environ: Mapping[str, str]) -> Load | None:
    """What loads the engine that this process runs; None: it runs none.

    Raises:
        ConfigError: packages for it are missing, or secrets.
    """
    local = config.local
    if local is None:
        return None
    if isinstance(local, SGLangProcessEngine):
        return partial(start_sglang, sglang_options(local))
    if missing := missing_packages():
        raise lacking(_path(config, local), "embedded", missing)
    return partial(load_embedded, embedded_options(local, _path(config, local), environ))


def prompts_of(config: Config, environ: Mapping[str, str]) -> Callable[[Path], PromptSource] | None:
    """What makes prompts of the engine that this server runs, from a tokenizer's folder; None: it runs none."""
    local = config.local
    if local is None:
        return None
    if isinstance(local, SGLangProcessEngine):
        return partial(sglang_prompts, sglang_options(local))
    return partial(embedded_prompts, embedded_options(local, _path(config, local), environ))


def _path(config: Config, engine: object) -> str:
    return f"engines[{next(i for i, each in enumerate(config.engines) if each is engine)}]"


def ledger_of(config: Config) -> str | None:
    """As `ledger_url` takes it; None: the environment's, or the file in the user's state folder."""
    return config.ledger.url


def settings_of(config: Config) -> GatewaySettings:
    """What the gateway is told."""
    settings = GatewaySettings(
        max_body_bytes=int(config.max_body_mib * MIB),
        canon=CanonSettings(
            tuple(map(parse_policy, config.canon_policy)),
            config.canon_rules_version,
            config.canon_slot_confirmations,
            memory_bytes=int(config.memory.max_mib * MIB),
            memory_ttl_s=config.memory.ttl_s,
        ),
        aliases={name: alias.made() for name, alias in config.aliases.items()},
        usage=config.usage,
        limits=config.limits.over(),
        max_running={
            engine.name: engine.max_running for engine in config.engines if engine.max_running is not None
        },
        queue=config.queue.settings(),
        metrics=config.admin is None or config.admin.metrics == "both",
    )
    return config.clients.over(settings)


def otel_of(config: Config, environ: Mapping[str, str]) -> OtelOptions | None:
    """What is sent by OpenTelemetry; None: nothing.

    Raises:
        ConfigError: what the environment asks for does not exist, or packages for the file's endpoint are missing.
    """
    try:
        options = otel_options(environ, config.otlp_endpoint)
    except OtelOptionsError as error:
        raise ConfigError(str(error)) from error
    if options is not None and config.otlp_endpoint is not None:
        need("otlp_endpoint", "otel")
    return options


def shared_of(config: Config, environ: Mapping[str, str]) -> Callable[[], Shared]:
    """What gateways share, made in each process that serves; nothing is asked of it yet.

    Raises:
        ConfigError: the password, the secret or a package is missing.
    """
    if config.redis is None:
        return Shared
    memory = config.memory
    secret = memory.key(environ)
    local = partial(LocalStore, int(memory.max_mib * MIB), ttl_s=memory.ttl_s)
    sealed = partial(Shared.in_redis, config.redis.options(environ))
    directory = None if config.directory is None else config.directory.options()
    return partial(
        sealed, local if memory.store == "redis" else None, memory.ttl_s, secret, directory=directory
    )
