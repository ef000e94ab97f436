"""What a server says of its own routes, in OpenAPI's form: the surest way to learn which fields it takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_adapters.reuse.reading import part

PATH = "/openapi.json"


@dataclass(frozen=True, slots=True)
class Api:
    """None: the server does not publish it."""

    paths: frozenset[str] | None = None
    chat_fields: frozenset[str] | None = None  # of a chat request

    def takes(self, field: str) -> bool | None:
        """Whether a chat request may have this field; a server ignores others in silence."""
        return None if self.chat_fields is None else field in self.chat_fields


def read_api(described: Mapping[str, Any]) -> Api:
    """Read `openapi.json` of a server whose chat requests are called as vLLM and SGLang call them."""
    fields = part(described, "components", "schemas", "ChatCompletionRequest", "properties")
    return Api(frozenset(part(described, "paths")) or None, frozenset(fields) or None)
