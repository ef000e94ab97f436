"""The shapes of requests."""

from typing import Any

from canon.requests.chat import ChatView
from canon.requests.draft import Draft
from canon.requests.view import RequestView


def view_of(body: Any) -> RequestView | None:
    """The view for a body of this shape; None: it is no request that canon knows."""
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("messages"), list):
        return ChatView(Draft(body))
    return None
