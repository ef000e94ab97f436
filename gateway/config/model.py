"""The whole file."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from canon.policy import RULES_VERSION, RULES_VERSIONS
from canon.slots import CONFIRMATIONS
from gateway.config.admin import AdminConfig
from gateway.config.aliases import AliasConfig, AliasName, check_aliases
from gateway.config.base import ConfigModel
from gateway.config.capture import CaptureConfig
from gateway.config.clients import ClientsConfig
from gateway.config.directory import DirectoryConfig
from gateway.config.engines import (
    EmbeddedEngine,
    EngineConfig,
    RemoteEngine,
    SGLangProcessEngine,
    check_names,
)
from gateway.config.isolation import check_isolation
from gateway.config.jwt import JwtConfig
from gateway.config.ledger import LedgerConfig
from gateway.config.limits import LimitsConfig, QueueConfig
from gateway.config.memory import MemoryConfig
from gateway.config.one_or_many import CanonPolicies
from gateway.config.routing import RoutingConfig
from gateway.config.secret_ref import SecretRef
from gateway.config.server import ServerConfig
from gateway.config.shared_state import RedisConfig
from gateway.config.tenants import TenantConfig, check_proofs, checked


class Config(ConfigModel):
    """Engines, and what is done to requests on their way to them."""

    engines: Annotated[list[EngineConfig], Field(min_length=1)]
    aliases: Annotated[dict[AliasName, AliasConfig], Field(default_factory=dict)]
    canon_policy: CanonPolicies  # as --canon-policy
    canon_rules_version: int = RULES_VERSION  # for conversations that begin; running ones keep theirs
    # Different values that make a gap in a line a learned slot.
    canon_slot_confirmations: Annotated[int, Field(ge=2, le=64)] = CONFIRMATIONS
    usage: Literal["standard", "full"] = "standard"  # full: `usage.kvgate` in every answer
    ledger: LedgerConfig = LedgerConfig()
    capture: CaptureConfig | None = None  # None: no body is kept anywhere
    otlp_endpoint: Annotated[str | None, Field(default=None, pattern=r"^https?://\S+$")]  # of a collector
    tenants: Annotated[list[TenantConfig], Field(default_factory=list)]  # empty: everyone is one tenant
    keys_file: Path | None = None  # lines TENANT SHA256 [EXPIRES] [admin], read again when it changes
    jwt: JwtConfig | None = None  # tokens of an OpenID provider, beside keys
    salt_secret: SecretRef | None = None  # what salts of groups are made from
    admin: AdminConfig | None = None  # None: there is no admin app
    max_body_mib: Annotated[float, Field(gt=0, le=1 << 20)] = 16
    clients: ClientsConfig = ClientsConfig()
    server: ServerConfig = ServerConfig()
    redis: RedisConfig | None = None  # None: this gateway shares nothing with others
    limits: LimitsConfig = LimitsConfig()  # of every tenant that does not say otherwise
    queue: QueueConfig = QueueConfig()
    memory: MemoryConfig = MemoryConfig()
    directory: DirectoryConfig | None = None  # None: each gateway routes by what it knows itself
    routing: RoutingConfig = RoutingConfig()

    @field_validator("canon_rules_version")
    @classmethod
    def _known_version(cls, given: int) -> int:
        if given not in RULES_VERSIONS:
            raise ValueError(f"there are {', '.join(map(str, sorted(RULES_VERSIONS)))}")
        return given

    @model_validator(mode="after")
    def _told_apart(self) -> "Config":
        check_names(self.engines)
        if len(self.engines) - len(self.remotes) > 1:
            raise ValueError("engines: only one of them can be embedded or sglang_process")
        check_aliases(self.aliases, {engine.name: engine.client_names() for engine in self.engines})
        return self

    @field_validator("tenants")
    @classmethod
    def _tenants(cls, given: list[TenantConfig]) -> list[TenantConfig]:
        return checked(given)

    @model_validator(mode="after")
    def _kept_apart(self) -> "Config":
        others = [name for name in ("keys_file", "jwt") if getattr(self, name) is not None]
        check_proofs(self.tenants, others, salted=self.salt_secret is not None)
        if self.jwt is not None:
            self.jwt.check([each.name for each in self.tenants])
        check_isolation(self.engines, self.tenants, self.aliases)
        return self

    @model_validator(mode="after")
    def _shared_somewhere(self) -> "Config":
        if self.memory.store == "redis" and self.redis is None:
            raise ValueError("memory.store: redis needs redis: {url: redis://HOST:PORT}")
        if self.directory is not None and self.redis is None:
            raise ValueError("directory: it stands in redis: {url: redis://HOST:PORT}")
        return self

    @property
    def local(self) -> EmbeddedEngine | SGLangProcessEngine | None:
        """The engine that this process runs, where there is one."""
        kinds = (EmbeddedEngine, SGLangProcessEngine)
        return next((each for each in self.engines if isinstance(each, kinds)), None)

    @property
    def remotes(self) -> list[tuple[int, RemoteEngine]]:
        """Engines behind HTTP, each with its place in the file."""
        return [(i, each) for i, each in enumerate(self.engines) if isinstance(each, RemoteEngine)]
