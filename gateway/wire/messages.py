"""Chat messages and tools as clients send them."""

import re
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from gateway.wire.validation import WireModel

_ROLES = ("system", "developer", "user", "assistant", "tool")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_.:/-]{1,128}")


class TextPart(WireModel):
    """`{"type": "text", "text": ...}`"""

    type: Literal["text"]
    text: str


class RefusalPart(WireModel):
    """`{"type": "refusal", "refusal": ...}`, which an assistant may have said."""

    type: Literal["refusal"]
    refusal: str


class UnsupportedPart(WireModel):
    """Anything else, which is refused by name."""

    type: str

    @field_validator("type")
    @classmethod
    def _refuse(cls, kind: str) -> str:
        raise ValueError(f"parts of type '{kind[:64]}' are not supported by this text model")


def _kind_of_part(part: object) -> str:
    kind = part.get("type", "text") if isinstance(part, dict) else "text"
    return f"<{kind}>" if kind in ("text", "refusal") else "<other>"


ContentPart = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[RefusalPart, Tag("<refusal>")]
    | Annotated[UnsupportedPart, Tag("<other>")],
    Discriminator(_kind_of_part),
]


def _kind_of_content(content: object) -> str | None:
    return "<string>" if isinstance(content, str) else "<parts>" if isinstance(content, list) else None


Content = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[list[ContentPart], Field(fail_fast=True), Tag("<parts>")],
    Discriminator(
        _kind_of_content,
        custom_error_type="content_type",
        custom_error_message="content must be a string or a list of parts",
    ),
]


class CalledFunction(WireModel):
    """What an assistant called; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(WireModel):
    """One call in an assistant's turn."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class SystemMessage(WireModel):
    """Instructions, under their old or their new role name."""

    role: Literal["system", "developer"]
    content: Content


class UserMessage(WireModel):
    """What the user said."""

    role: Literal["user"]
    content: Content


class AssistantMessage(WireModel):
    """What the model said; without content only when it called tools."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    reasoning_content: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "AssistantMessage":
        if self.content is None and not self.tool_calls:
            raise ValueError("an assistant message needs content or tool_calls")
        return self


class ToolMessage(WireModel):
    """What a tool returned."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str


def _role_of(message: object) -> str | None:
    role = message.get("role", "user") if isinstance(message, dict) else "user"
    return f"<{role}>" if role in _ROLES else "<role>"  # both say what is wrong themselves


class _UnknownRole(WireModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]


Message = Annotated[
    Annotated[SystemMessage, Tag("<system>")]
    | Annotated[SystemMessage, Tag("<developer>")]
    | Annotated[UserMessage, Tag("<user>")]
    | Annotated[AssistantMessage, Tag("<assistant>")]
    | Annotated[ToolMessage, Tag("<tool>")]
    | Annotated[_UnknownRole, Tag("<role>")],
    Discriminator(_role_of),
]


class Function(WireModel):
    """A function the model may call; `parameters` is a JSON schema."""

    name: Annotated[str, Field(pattern=f"^{_TOOL_NAME.pattern}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(WireModel):
    """One offered tool."""

    type: Literal["function"]
    function: Function


class NamedFunction(WireModel):
    """The function that must be called."""

    name: str


class NamedToolChoice(WireModel):
    """`{"type": "function", "function": {"name": ...}}`"""

    type: Literal["function"]
    function: NamedFunction


ToolChoice = Annotated[
    Annotated[Literal["auto", "none", "required"], Tag("<word>")]
    | Annotated[NamedToolChoice, Tag("<named>")],
    Discriminator(
        lambda choice: "<named>" if isinstance(choice, dict) else "<word>",
    ),
]
