"""The shapes of requests."""

from typing import Any

from canon.requests.chat import ChatView
from canon.requests.completions import CompletionsView
from canon.requests.draft import Draft
from canon.requests.messages import MessagesView, is_messages_body
from canon.requests.responses import ResponsesView
from canon.requests.view import RequestView


def view_of(body: Any) -> RequestView | None:
    """The view for a body of this shape; None: it is no request that canon knows."""
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("messages"), list):
        return MessagesView(Draft(body)) if is_messages_body(body) else ChatView(Draft(body))
    if isinstance(body.get("input"), str | list) or isinstance(body.get("instructions"), str):
        return ResponsesView(Draft(body))
    if isinstance(body.get("prompt"), str | list):
        return CompletionsView(Draft(body))
    return None
