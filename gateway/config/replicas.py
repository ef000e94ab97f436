"""Where the replicas of an engine are, and how they are used: keys of every engine behind HTTP."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gateway.addresses import engine_url
from gateway.config.base import ConfigModel
from gateway.relay.remote import LookOptions
from gateway.replicas.address import ReplicaAddress
from gateway.replicas.breaker import BreakerOptions
from gateway.replicas.discovery.dns import DnsName
from gateway.replicas.outliers import OutlierOptions
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.retry_budget import RetryOptions

Seconds: TypeAlias = Annotated[float, Field(gt=0, le=86400)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
_DNS_NAME = r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9.])?$"
_OBJECT = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"  # a name in Kubernetes

_LOOK, _BREAKER, _SLOW, _RETRY, _POLICY = (
    LookOptions(),
    BreakerOptions(),
    OutlierOptions(),
    RetryOptions(),
    PoolPolicy(),
)


class NamedUrl(ConfigModel):
    """One replica of a list."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$")]
    url: str

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        return engine_url(url)


class DnsReplicas(ConfigModel):
    """All addresses of a name, as that of a headless Service."""

    name: Annotated[str, Field(pattern=_DNS_NAME)]
    port: Port
    scheme: Literal["http", "https"] = "http"
    every_s: Annotated[float, Field(ge=0.5, le=3600)] = 5.0
    family: Literal["any", "ipv4", "ipv6"] = "any"

    def dns_name(self) -> DnsName:
        """What is looked up."""
        return DnsName(self.name, self.port, self.scheme, self.every_s, self.family)


class KubernetesReplicas(ConfigModel):
    """The ready endpoints of a Service, as the cluster's API says them."""

    service: Annotated[str, Field(pattern=_OBJECT)]
    namespace: Annotated[str, Field(pattern=_OBJECT)] | None = None  # None: the pod's own
    port: Port | str | None = None  # a pod's port or the name of one; None: there is only one
    scheme: Literal["http", "https"] = "http"
    server: str | None = None  # None: that of the cluster which this runs in, with the account's token
    token_file: Path | None = None
    ca_file: Path | None = None

    @field_validator("server")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        return None if url is None else engine_url(url)

    @model_validator(mode="after")
    def _with_a_server(self) -> "KubernetesReplicas":
        if self.server is None and (self.token_file or self.ca_file):
            raise ValueError("token_file and ca_file go with server: the cluster's own are taken without it")
        return self


class FoundReplicas(ConfigModel):
    """Replicas that come and go."""

    dns: DnsReplicas | None = None
    kubernetes: KubernetesReplicas | None = None

    @model_validator(mode="after")
    def _one(self) -> "FoundReplicas":
        if (self.dns is None) == (self.kubernetes is None):
            raise ValueError("write a list of URLs, or dns, or kubernetes")
        return self


class HealthConfig(ConfigModel):
    """How replicas that fail are found and left alone. Defaults are those of the options that they become."""

    every_s: Seconds = _LOOK.every_s
    misses: Annotated[int, Field(ge=1, le=100)] = _LOOK.misses
    failures: Annotated[int, Field(ge=1, le=10_000)] = _BREAKER.failures
    error_rate: Annotated[float, Field(gt=0, le=1)] = _BREAKER.error_rate
    error_rate_requests: Annotated[int, Field(ge=1, le=1_000_000)] = _BREAKER.requests
    window_s: Seconds = _BREAKER.window_s
    open_s: Seconds = _BREAKER.open_s
    longest_open_s: Seconds = _BREAKER.longest_open_s
    probes: Annotated[int, Field(ge=1, le=1000)] = _BREAKER.probes
    good_probes: Annotated[int, Field(ge=1, le=1000)] = _BREAKER.good_probes
    max_ejected: Share = _POLICY.max_ejected
    slow_start_s: Annotated[float, Field(ge=0, le=86400)] = _POLICY.slow_start_s
    slow_factor: Annotated[float, Field(gt=1, le=1000)] | None = _SLOW.factor  # null: nobody is too slow
    slow_above_s: Annotated[float, Field(ge=0, le=3600)] = _SLOW.above_s
    slow_samples: Annotated[int, Field(ge=2, le=10_000)] = _SLOW.samples
    slow_window_s: Seconds = _SLOW.window_s
    slow_away_s: Seconds = _SLOW.away_s
    hung_s: Seconds = _POLICY.hung_s

    def look(self) -> LookOptions:
        """How each is watched."""
        return LookOptions(self.every_s, self.misses)

    def breaker(self) -> BreakerOptions:
        """When each is left alone for what its requests met."""
        return BreakerOptions(
            self.failures,
            self.error_rate,
            self.error_rate_requests,
            self.window_s,
            self.open_s,
            max(self.open_s, self.longest_open_s),
            self.probes,
            self.good_probes,
        )

    def outliers(self) -> OutlierOptions | None:
        """When one is too slow."""
        if self.slow_factor is None:
            return None
        return OutlierOptions(
            self.slow_factor,
            self.slow_above_s,
            self.slow_samples,
            self.slow_window_s,
            self.slow_away_s,
            max(self.slow_away_s, _SLOW.longest_away_s),
        )


class RetryConfig(ConfigModel):
    """Sending a request to another replica before its client has got a byte of an answer."""

    tries: Annotated[int, Field(ge=1, le=10)] = _RETRY.tries
    budget: Share = _RETRY.budget
    reserve: Annotated[int, Field(ge=0, le=10_000)] = _RETRY.reserve
    per_s: Annotated[float, Field(ge=0, le=1000)] = _RETRY.per_s

    def options(self) -> RetryOptions:
        """The same."""
        return RetryOptions(self.tries, self.budget, self.reserve, self.per_s)


class ReplicatedEngine(ConfigModel):
    """What an engine behind HTTP says of its replicas."""

    url: str | None = None
    replicas: Annotated[list[str | NamedUrl] | FoundReplicas | None, Field(validate_default=True)] = None
    health: HealthConfig = HealthConfig()
    retries: RetryConfig = RetryConfig()
    hedge_after_s: Seconds | None = None
    timeout_s: Seconds | None = None
    stall_s: Seconds = _POLICY.stall_s

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        return None if url is None else engine_url(url)

    @field_validator("replicas")
    @classmethod
    def _somewhere(
        cls, given: list[str | NamedUrl] | FoundReplicas | None, info: ValidationInfo
    ) -> list[str | NamedUrl] | FoundReplicas | None:
        # A URL that is wrong in itself is not there, and has a message of its own.
        if "url" in info.data and (info.data["url"] is None) == (given is None):
            raise ValueError("write url, or replicas where there are several")
        return given

    @field_validator("replicas")
    @classmethod
    def _plain_urls(
        cls, given: list[str | NamedUrl] | FoundReplicas | None
    ) -> list[str | NamedUrl] | FoundReplicas | None:
        if isinstance(given, list):
            addresses = addresses_of(given)
            if not addresses:
                raise ValueError("write at least one URL")
            for what in ("name", "url"):
                values = [getattr(each, what) for each in addresses]
                if len(set(values)) < len(values):
                    raise ValueError(f"two replicas have the same {what}")
        return given

    def policy(self) -> PoolPolicy:
        """How they are used."""
        return PoolPolicy(
            self.health.breaker(),
            self.health.outliers(),
            self.retries.options(),
            self.health.max_ejected,
            self.health.slow_start_s,
            self.hedge_after_s,
            self.timeout_s,
            self.stall_s,
            self.health.hung_s,
        )


def addresses_of(given: list[str | NamedUrl]) -> list[ReplicaAddress]:
    """Replicas of a list; one without a name has its host's. Raises ValueError for what is no URL."""
    return [
        ReplicaAddress(each.name, each.url)
        if isinstance(each, NamedUrl)
        else ReplicaAddress(engine_url(each).partition("://")[2].partition("/")[0], each)
        for each in given
    ]
