"""Special tokens in the content of requests that another engine makes a prompt of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from canon.tokens import ControlTokenScanner
from engine_adapters.remote.relay import Route
from gateway.errors import invalid

# What templates are given. Completions are left out: a raw prompt is its writer's own.
_GIVEN: Mapping[Route, tuple[str, ...]] = {
    "chat": ("messages", "tools", "functions", "documents", "chat_template_kwargs"),
    "responses": ("instructions", "input", "tools", "chat_template_kwargs"),
    "messages": ("system", "messages", "tools", "chat_template_kwargs"),
}


@dataclass(frozen=True, slots=True)
class ControlTokenCheck:
    """Looks for one model's special tokens, and changes nothing."""

    scanner: ControlTokenScanner
    action: Literal["report", "reject"]

    def concerns(self, route: Route) -> bool:
        """Whether requests of `route` have content that may have none in it."""
        return route in _GIVEN

    def found(self, route: Route, body: Mapping[str, Any], raw: bytes | None = None) -> dict[str, int]:
        """How many stand at which path; takes as long as reading the body once.

        `raw`: the body as bytes, which tell sooner that there are none; None: they are not at hand.

        Raises:
            ApiError: 400, there are some and they are to be rejected.
        """
        if raw is not None and not self.scanner.may_be_in(raw):
            return {}
        found = self.scanner.found({name: body[name] for name in _GIVEN[route] if name in body})
        if found and self.action == "reject":
            message = "special tokens of this model may not be written in a request"
            raise invalid(message, next(iter(found)), "invalid_value")
        return found
