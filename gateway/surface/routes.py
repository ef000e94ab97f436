"""The paths of generation and their like: which route each leads to, and how a refusal names what there is."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from engine_adapters.remote.relay import Route

# The first path of a route is the one that refusals name.
PATHS: Final[Mapping[Route, tuple[str, ...]]] = MappingProxyType(
    {
        "chat": ("/v1/chat/completions",),
        "completions": ("/v1/completions",),
        "responses": ("/v1/responses",),
        "embeddings": ("/v1/embeddings",),
        "messages": ("/v1/messages",),
        "count_tokens": ("/v1/messages/count_tokens",),
        "rerank": ("/v1/rerank", "/rerank", "/v2/rerank"),
        "tokenize": ("/tokenize", "/v1/tokenize"),
        "detokenize": ("/detokenize", "/v1/detokenize"),
    }
)
# Of responses that an engine keeps; `id` is theirs.
KEPT_PATHS: Final[Mapping[Route, tuple[str, str]]] = MappingProxyType(
    {
        "response": ("GET", "/v1/responses/{id}"),
        "response_delete": ("DELETE", "/v1/responses/{id}"),
        "response_cancel": ("POST", "/v1/responses/{id}/cancel"),
        "response_items": ("GET", "/v1/responses/{id}/input_items"),
    }
)
LOCAL: Final[frozenset[Route]] = frozenset({"chat", "completions", "tokenize", "detokenize"})
"""Those of engines in this process."""

NO_ROW: Final[frozenset[Route]] = frozenset({"count_tokens", "tokenize", "detokenize", *KEPT_PATHS})
"""Those that run no model: neither the ledger nor its reports count them."""

NAMELESS: Final[frozenset[Route]] = frozenset({"responses", "rerank", "tokenize", "detokenize"})
"""Those whose bodies need not name a model, where there is only one engine."""


def path_of(route: Route) -> str:
    """How a refusal names a route."""
    return PATHS[route][0] if route in PATHS else " ".join(KEPT_PATHS[route])


def has_none(engine: str, route: Route, has: Collection[Route]) -> str:
    """That an engine has no such route, and which it has."""
    known = [path_of(name) for name in (*PATHS, *KEPT_PATHS) if name in has]
    return f"The engine {engine} has no {path_of(route)}; it has {', '.join(known)}."
