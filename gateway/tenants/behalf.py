"""Another gateway's requests: each says for whom it is, and which salt keeps that one apart."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from engine_adapters.remote.cache_salt import combined
from engine_adapters.remote.kvgate import SALT_HEADER, TENANT_HEADER
from gateway.errors import ApiError
from gateway.tenants.tenant import Tenant

# As they came, names in lower case; a name may stand there more than once.
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_SALT, _TENANT = SALT_HEADER.encode(), TENANT_HEADER.encode()
_SALTS = re.compile(rb"[!-~]{16,256}")
_NAMES = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._/-]{0,255}")


def on_behalf(tenant: Tenant, headers: Headers) -> Tenant:
    """For whom a request is that `tenant` sent: itself, or, where it is another gateway, one of that one's tenants.

    Raises:
        ApiError: 400, a salt from who is no gateway, which must not be answered as if it had been heeded; or one in
            no known form.
    """
    if not tenant.gateway:
        check_none(headers)
        return tenant
    given = [(name, value.strip()) for name, value in headers if name in (_SALT, _TENANT)]
    said = dict(given)
    if len(said) < len(given):
        raise _refused("A header that says for whom the request is stands there twice.")
    if _SALT not in said:
        return tenant
    if not _SALTS.fullmatch(said[_SALT]) or not _NAMES.fullmatch(said.get(_TENANT, b"x")):
        raise _refused("The headers that say for whom the request is have no known form.")
    name = said[_TENANT].decode() if _TENANT in said else None
    return member(tenant, said[_SALT].decode(), name)


def member(gateway: Tenant, salt: str, name: str | None) -> Tenant:
    """A tenant of another gateway, which is `gateway` here. Nothing is shared under two salts, whatever the names."""
    own = combined(gateway.salt or "", salt)
    mark = hashlib.sha256(b"kvgate mark of a salt\0" + own.encode()).hexdigest()[:32]
    full = gateway.name if name is None else f"{gateway.name}/{name}"
    return replace(gateway, name=full, salt=own, mark=f"{gateway.mark}@{mark}")


def check_none(headers: Headers) -> None:
    """Raises ApiError 400 where there is a salt: who sends it counts on being kept apart by it."""
    for name, _ in headers:
        if name == _SALT:
            raise _refused(
                f"{SALT_HEADER} is taken from another kvgate alone: say gateway: true at the tenant whose key it has."
            )


def _refused(message: str) -> ApiError:
    return ApiError(400, message, param=SALT_HEADER, code="salt_not_taken")
