"""Tokens of an OpenID provider (JWT): who signed them for whom, until when, and which tenant they name."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jwt

from gateway.tenants.json_web_keys import JsonWebKeys

log = logging.getLogger("kvgate.gateway")

# Signatures that only the holder of the private key can make: never those that the public key can make, too.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LEEWAY_S = 30  # by which two clocks may part


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token has to say."""

    issuer: str
    audience: tuple[str, ...]  # one of them
    algorithms: Sequence[str] = ALGORITHMS
    claim: str = "tenant"  # whose value names the tenant
    tenants: Mapping[str, str] = field(
        default_factory=dict
    )  # value of the claim -> tenant; empty: it is its name


class Tokens:
    """Judges tokens by `rules`, with the keys of their provider."""

    def __init__(self, rules: TokenRules, keys: JsonWebKeys) -> None:
        self._rules = rules
        self._keys = keys

    async def tenant_of(self, token: bytes) -> str | None:
        """The name of the tenant that a token proves; None: it is not valid, whatever the reason.

        Raises:
            ApiError: 503, no keys can be had.
        """
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        kid = header.get("kid")
        if header.get("alg") not in self._rules.algorithms or not (kid is None or isinstance(kid, str)):
            return None
        key = await self._keys.key(kid)
        return None if key is None else self._tenant(self._claims(token, key, header["alg"]))

    def _claims(self, token: bytes, key: Mapping[str, Any], algorithm: str) -> Mapping[str, Any]:
        """Empty where the token is not valid."""
        rules = self._rules
        try:
            # The key says what it is for, the token only what it claims: both must be the same.
            made = jwt.PyJWK(dict(key), algorithm=key.get("alg") or algorithm)
            return jwt.decode(
                token,
                made,
                algorithms=[made.algorithm_name] if made.algorithm_name in rules.algorithms else [],
                issuer=rules.issuer,
                audience=list(rules.audience),
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            return {}

    def _tenant(self, claims: Mapping[str, Any]) -> str | None:
        value = claims.get(self._rules.claim)
        if not isinstance(value, str):
            return None
        return self._rules.tenants.get(value) if self._rules.tenants else value
