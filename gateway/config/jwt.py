"""`jwt:` in the configuration file."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gateway.config.base import ConfigModel
from gateway.config.engines import Name
from gateway.config.extras import need
from gateway.config.one_or_many import OneOrMany
from gateway.tenants.json_web_keys import JsonWebKeys
from gateway.tenants.keyed import TokenVerifier

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip


class JwtConfig(ConfigModel):
    """Tokens of an OpenID provider, beside keys."""

    issuer: Annotated[str, Field(min_length=1)]
    audience: Annotated[list[str], OneOrMany, Field(min_length=1)]  # a token has to be for one of these
    jwks_url: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+$")] | None = None
    jwks_file: Path | None = None
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] | None = None  # None: all of these
    claim: Annotated[str, Field(min_length=1)] = "tenant"
    tenants: Annotated[dict[str, Name], Field(default_factory=dict)]  # value of the claim -> tenant

    @model_validator(mode="after")
    def _one_source(self) -> "JwtConfig":
        if (self.jwks_url is None) == (self.jwks_file is None):
            raise ValueError("write either jwks_url or jwks_file")
        return self

    def check(self, tenants: Collection[str]) -> None:
        """Raises ValueError for a tenant that is none of these."""
        unknown = sorted(set(self.tenants.values()) - set(tenants))
        if unknown:
            raise ValueError(f"jwt.tenants: there is no tenant {unknown[0]!r}")

    def verifier(self) -> TokenVerifier:
        """Who judges tokens; raises ConfigError where packages are missing."""
        need("jwt", "jwt")
        from gateway.tenants.tokens import ALGORITHMS, TokenRules, Tokens

        rules = TokenRules(
            self.issuer, tuple(self.audience), tuple(self.algorithms or ALGORITHMS), self.claim, self.tenants
        )
        source = self.jwks_file if self.jwks_url is None else self.jwks_url
        assert source is not None
        return Tokens(rules, JsonWebKeys(source))
