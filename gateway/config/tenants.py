"""`tenants:` in the configuration file, and what tells them apart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from gateway.config.base import ConfigModel
from gateway.config.engines import Name
from gateway.config.errors import ConfigError
from gateway.config.limits import LimitsConfig
from gateway.config.one_or_many import CanonPolicies
from gateway.config.secret_ref import SecretRef
from gateway.limits.tenant_limits import NO_LIMITS, TenantLimits
from gateway.tenants.keyed import Keyed, TokenVerifier
from gateway.tenants.keys import KeyHash, KeyRing, KeySource, digest_of, expiry_of
from gateway.tenants.keys_file import KeysFile, KeysFileError
from gateway.tenants.salts import mark_of, salt_of
from gateway.tenants.tenant import UNKNOWN, Tenant

_PATTERN = Annotated[str, Field(min_length=1, max_length=500)]


class KeyConfig(ConfigModel):
    """One key: its hash alone, or `{sha256: HASH, expires: 2027-01-31, admin: true}`."""

    sha256: str
    expires: str | None = None
    admin: bool = False  # its answers say how they were routed, which tells what others have sent

    @model_validator(mode="before")
    @classmethod
    def _hash_alone(cls, given: object) -> object:
        return {"sha256": given} if isinstance(given, str) else given

    @field_validator("sha256")
    @classmethod
    def _hash(cls, given: str) -> str:
        digest_of(given)
        return given

    @field_validator("expires", mode="before")
    @classmethod
    def _date(cls, given: object) -> object:
        text = given if given is None or isinstance(given, str) else str(given)  # YAML has dates of its own
        if text is not None:
            expiry_of(text)
        return text

    def of(self, tenant: str) -> KeyHash:
        """As a tenant's."""
        expires = None if self.expires is None else expiry_of(self.expires)
        return KeyHash(tenant, digest_of(self.sha256), expires, self.admin)


class TenantConfig(ConfigModel):
    """One tenant."""

    name: Name
    group: Name | None = None  # tenants of one group share prefixes; None: it shares with nobody
    keys: Annotated[list[KeyConfig], Field(default_factory=list)]
    models: list[_PATTERN] | None = None  # names and patterns, such as qwen-*; None: all
    canon_policy: CanonPolicies  # count before the gateway's
    limits: LimitsConfig | None = None  # what is not written here is as in `limits:`
    # Whether its key is another kvgate's, which is believed for whom of its own tenants it asks.
    gateway: bool = False
    may_bypass: bool = False  # whether its requests may ask for a weaker policy, with x-kvgate-policy

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name == UNKNOWN.name:
            raise ValueError("this name stands for requests without a valid key")
        return name

    @property
    def shares_as(self) -> str:
        """The group's name; without one, the tenant's own."""
        return self.group or self.name


def checked(tenants: list[TenantConfig]) -> list[TenantConfig]:
    """Tenants that can be told apart; raises ValueError."""
    names = [each.name for each in tenants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two tenants are called {twice[0]!r}")
    for each in tenants:
        if each.group in names and each.group != each.name:
            raise ValueError(f"the group {each.group!r} has the name of a tenant, which would share with it")
    keys = [digest_of(key.sha256) for each in tenants for key in each.keys]
    if len(set(keys)) < len(keys):
        raise ValueError("one key stands there twice")
    return tenants


def check_proofs(tenants: list[TenantConfig], others: list[str], *, salted: bool) -> None:
    """Refuse tenants that nothing proves, and what proves none; raises ValueError.

    `others`: keys of the file that tell keys or tokens from elsewhere. `salted`: whether there is a secret for salts.
    """
    if others and not tenants:
        raise ValueError(f"{others[0]}: there are no tenants that it could speak of")
    if tenants and not others and not any(each.keys for each in tenants):
        raise ValueError("tenants: none of them has a key: kvgate keys new makes one")
    if len({each.shares_as for each in tenants}) > 1 and not salted:
        raise ValueError("salt_secret: missing; it keeps groups of tenants apart in caches")


def tenants_of(
    configured: list[TenantConfig],
    salt_secret: SecretRef | None,
    environ: Mapping[str, str],
    limits: TenantLimits = NO_LIMITS,
) -> list[Tenant]:
    """Tenants as requests carry them; raises ConfigError where the secret is not where it should be."""
    secret = None if salt_secret is None else salt_secret.strong("salt_secret", environ)
    return [
        Tenant(
            each.name,
            each.shares_as,
            salt=None if secret is None else salt_of(secret, each.shares_as),
            models=None if each.models is None else tuple(each.models),
            mark="" if secret is None else mark_of(secret, each.shares_as),
            canon=tuple(each.canon_policy),
            may_bypass=each.may_bypass,
            gateway=each.gateway,
            limits=None if each.limits is None else each.limits.over(limits),
        )
        for each in configured
    ]


def keyed(
    configured: list[TenantConfig],
    keys_file: Path | None,
    salt_secret: SecretRef | None,
    environ: Mapping[str, str],
    tokens: TokenVerifier | None = None,
    limits: TenantLimits = NO_LIMITS,
) -> Keyed:
    """Who finds these tenants. `tokens`: judges tokens, as `Keyed` has it; `limits`: of who says no other.

    Raises:
        ConfigError: a secret or the file of keys cannot be used.
    """
    tenants = tenants_of(configured, salt_secret, environ, limits)
    sources: list[KeySource] = [KeyRing(key.of(each.name) for each in configured for key in each.keys)]
    if keys_file is not None:
        try:
            sources.append(KeysFile(keys_file, [each.name for each in tenants]))
        except KeysFileError as error:
            raise ConfigError(f"keys_file: {error}") from None
    return Keyed(tenants, sources, tokens)
