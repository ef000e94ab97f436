"""The key of a request, out of its headers."""

from gateway.errors import ApiError
from gateway.tenants.behalf import Headers

LONGEST = 8192  # bytes; a JWT may have some thousands

_PLACES = frozenset({b"authorization", b"x-api-key"})


def credential(headers: Headers) -> bytes:
    """What `Authorization: Bearer` or `x-api-key` says; raises ApiError 401 where that is not one single key.

    Two of these headers are taken only where they say the same: what stands before the gateway may have looked at
    the other one.
    """
    given = [(name, value) for name, value in headers if name in _PLACES]
    key = _key(*given[0]) if given else b""
    if len(given) > 1:
        others = {_key(name, value) for name, value in given}
        if others != {key} or len({name for name, _ in given}) < len(given):
            raise refused("The request has more than one key.")
    if not key:
        raise refused("The request has no API key: send it as Authorization: Bearer KEY, or as x-api-key.")
    if len(key) > LONGEST:
        raise incorrect()
    return key


def incorrect() -> ApiError:
    """HTTP 401 that says nothing of why: a key that is unknown, expired or of another form looks the same."""
    return refused("The API key is not valid here.")


def refused(message: str) -> ApiError:
    """HTTP 401. The message never repeats what was sent."""
    return ApiError(
        401,
        message,
        type_="authentication_error",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def _key(name: bytes, value: bytes) -> bytes:
    if name != b"authorization":
        return value.strip()
    scheme, _, rest = value.strip().partition(b" ")
    if scheme.lower() != b"bearer":
        raise refused("Only Authorization: Bearer is taken.")
    return rest.strip()
