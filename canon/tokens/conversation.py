"""A chat request's messages, in the form that a chat template expects them in."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from canon.errors import TemplateError
from canon.tokens.lexemes import parse_object
from canon.tokens.limits import ChatLimits
from canon.tokens.plain_data import PlainCopy
from canon.tokens.traits import TemplateTraits

Message = dict[str, Any]

_PLAIN = {"role", "content"}
STANDARD_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))

# Names a message's reasoning comes under; templates read the first, some of them the second.
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")

# What OpenAI calls a part, and what chat templates call it.
_TEMPLATE_KINDS = {
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "video",
}


class ConversationForm:
    """Turns requests' messages and tools into what one template takes.

    `roles` are those the template names besides the standard ones; `takes_part` says whether it takes content parts
    other than text.
    """

    def __init__(
        self,
        traits: TemplateTraits,
        roles: frozenset[str],
        takes_part: Callable[[Mapping[str, Any]], bool],
        limits: ChatLimits,
    ) -> None:
        self._traits = traits
        self._roles = STANDARD_ROLES | roles
        # Of whom texts go on as they are.
        self._plain_roles = self._roles if traits.takes_strings else frozenset[str]()
        if not traits.knows_developer:
            self._plain_roles -= {"developer"}
        self._takes_part = takes_part
        self._limits = limits

    def messages(self, messages: Any, copy: PlainCopy) -> list[Message]:
        """Raises `TemplateError` naming the message, or the part of it, that the template cannot take."""
        if type(messages) is not list and (
            not isinstance(messages, Sequence) or isinstance(messages, str | bytes)
        ):
            raise TemplateError("messages must be a list", "messages")
        if not messages:
            raise TemplateError("messages must not be empty", "messages")
        if len(messages) > self._limits.messages:
            raise TemplateError(f"more than {self._limits.messages} messages", "messages")
        return [
            dict(message) if self._is_plain(message, copy) else self._message(message, f"messages[{i}]", copy)
            for i, message in enumerate(messages)
        ]

    def _is_plain(self, message: Any, copy: PlainCopy) -> bool:
        """Whether it is a text that goes on as it is, as most do; counts it then."""
        if type(message) is not dict or message.keys() != _PLAIN:
            return False
        role, content = message["role"], message["content"]
        return type(role) is str and role in self._plain_roles and copy.fit("role", role, "content", content)

    def tools(self, tools: Any, copy: PlainCopy) -> list[dict[str, Any]] | None:
        if not tools:
            return None
        if not self._traits.takes_tools:
            raise TemplateError(
                "this model's chat template takes no tools: serve a model that was made for them, such as "
                "Qwen/Qwen3-0.6B, or give a template of your own with --chat-template",
                "tools",
            )
        if not isinstance(tools, Sequence) or not all(isinstance(tool, Mapping) for tool in tools):
            raise TemplateError("tools must be a list of objects", "tools")
        return [copy.copy(tool, f"tools[{i}]") for i, tool in enumerate(tools)]

    def _message(self, message: Any, path: str, copy: PlainCopy) -> Message:
        if type(message) is not dict and not isinstance(message, Mapping):
            raise TemplateError("a message must be an object", path)
        plain: Message = copy.copy({k: v for k, v in message.items() if v is not None}, path)
        plain["role"] = self._role(plain.get("role"), path)
        if "content" in plain:
            plain["content"] = self._content(plain["content"], f"{path}.content")
        if plain.get("tool_calls") == []:
            del plain["tool_calls"]  # no calls; some templates only ask whether the name is there
        if "tool_calls" in plain:
            plain["tool_calls"] = self._calls(plain["tool_calls"], f"{path}.tool_calls")
        return _with_reasoning(plain)

    def _role(self, role: Any, path: str) -> str:
        if not isinstance(role, str):
            raise TemplateError("a message needs a role", f"{path}.role")
        if role == "developer" and not self._traits.knows_developer:
            return "system"
        # Templates write unknown roles into headers of their own, so a role is never free text.
        if role not in self._roles:
            raise TemplateError(f"this model's chat template has no role {role!r:.60}", f"{path}.role")
        return role

    def _content(self, content: Any, path: str) -> Any:
        if isinstance(content, str):
            return content if self._traits.takes_strings else [_text_part(content)]
        if not isinstance(content, list):
            raise TemplateError("content must be a string or a list of parts", path)
        parts = [self._part(part, f"{path}[{i}]") for i, part in enumerate(content)]
        if self._traits.takes_parts:
            return parts
        return "\n".join(part["text"] for part in parts)

    def _part(self, part: Any, path: str) -> dict[str, Any]:
        if isinstance(part, str):
            return _text_part(part)
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "refusal", "input_text", "output_text"):
            text = part.get("refusal" if kind == "refusal" else "text")
            if not isinstance(text, str):
                raise TemplateError("a text part needs a text", path)
            return part if kind == "text" else _text_part(text)
        if not isinstance(kind, str):
            raise TemplateError("a content part must be an object with a type", path)
        return self._other_part(part, kind, path)

    def _other_part(self, part: dict[str, Any], kind: str, path: str) -> dict[str, Any]:
        if self._traits.takes_parts:
            for name in dict.fromkeys((kind, _TEMPLATE_KINDS.get(kind, kind))):
                if self._takes_part({"type": name, name: ""}):
                    return {**part, "type": name}
        raise TemplateError(f"this model's chat template takes no content of type {kind!r:.60}", path)

    def _calls(self, calls: Any, path: str) -> Any:
        if not isinstance(calls, list):
            raise TemplateError("tool_calls must be a list", path)
        if calls and not self._traits.takes_tool_calls:
            raise TemplateError("this model's chat template takes no tool calls", path)
        return [self._call(call, f"{path}[{i}]") for i, call in enumerate(calls)]

    def _call(self, call: Any, path: str) -> Any:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise TemplateError("a tool call needs a function", path)
        arguments = function.get("arguments")
        return {**call, "function": {**function, "arguments": self._arguments(arguments)}}

    def _arguments(self, arguments: Any) -> Any:
        """As the template expects them: text goes on as it came, since that is what the model once wrote."""
        if arguments is None or arguments == "":
            arguments = "{}"
        if not isinstance(arguments, str) or self._traits.takes_argument_text:
            return arguments
        parsed = parse_object(arguments)
        return arguments if parsed is None else parsed


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _with_reasoning(message: Message) -> Message:
    """Reasoning under the names that templates read it by."""
    reasoning = next((message[name] for name in REASONING_FIELDS if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
