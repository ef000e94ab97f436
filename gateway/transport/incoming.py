"""A request as it came in."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.tenants.tenant import DEFAULT, Tenant


class Incoming(msgspec.Struct, frozen=True):
    """A parsed body with the bytes it was parsed from, and the request's headers."""

    body: dict[str, Any]
    raw: bytes
    headers: Mapping[bytes, bytes] = MappingProxyType({})  # names in lower case
    tenant: Tenant = DEFAULT
    model: str = ""  # that it asks for, aliases resolved; empty: it names none

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.raw)

    def header(self, name: str) -> str | None:
        """Its value; None: there is none. `name` in lower case."""
        value = self.headers.get(_encoded(name))
        return None if value is None else value.decode("latin-1").strip()


_encoded = lru_cache(maxsize=256)(str.encode)  # names of headers are the code's and the operator's, and few
