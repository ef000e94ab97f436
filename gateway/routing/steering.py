"""What a client says of which requests belong together."""

from collections.abc import Sequence

from gateway.transport.incoming import Incoming

_FIELD = "prompt_cache_key"  # of OpenAI's API, which steers there, too


def session_of(incoming: Incoming, headers: Sequence[str]) -> str | None:
    """By the first of `headers` that is there, else by the body's own field; None: nothing is said."""
    for name in headers:
        if value := incoming.header(name):
            return f"{name}:{value}"
    value = incoming.body.get(_FIELD)
    return f"{_FIELD}:{value}" if isinstance(value, str) and value else None
