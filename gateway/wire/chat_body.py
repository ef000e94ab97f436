"""The body of POST /v1/chat/completions."""

from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from engine_adapters.base import GrammarSpec, ToolOptions
from gateway.errors import invalid, unsupported
from gateway.settings import GatewaySettings
from gateway.wire.messages import Message, NamedToolChoice, Tool, ToolChoice
from gateway.wire.sampling import SamplingFields, check_common
from gateway.wire.validation import WireModel


class JsonSchema(WireModel):
    """A named schema; `strict` is taken and makes no difference, since every schema is enforced."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(WireModel):
    """What the answer's text must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class ChatBody(SamplingFields):
    """What a chat completion may ask for."""

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    tools: Annotated[list[Tool], Field(fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    modalities: list[str] | None = None
    functions: Any = None
    function_call: Any = None

    def template_kwargs(self) -> dict[str, Any]:
        """Variables for the template beside messages and tools."""
        effort = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        return {**effort, **(self.chat_template_kwargs or {})}

    def token_limit(self) -> int | None:
        """The new name of the limit wins over the old one."""
        return self.max_completion_tokens or self.max_tokens

    def wanted_logprobs(self) -> int | None:
        """How many alternatives a token, or None for no log probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else None

    def opens_turn(self) -> bool:
        """Whether the template starts an assistant turn; not when the last message is to be continued."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt


def check_chat(chat: ChatBody, settings: GatewaySettings) -> None:
    """Refuse what contradicts itself or is not supported; raises ApiError 400."""
    check_common(chat, settings)
    if chat.top_logprobs is not None and not chat.logprobs:
        raise invalid("'top_logprobs' needs 'logprobs': true.", "top_logprobs")
    if chat.modalities is not None and chat.modalities != ["text"]:
        raise unsupported("This model answers with text only.", "modalities")
    if chat.functions is not None or chat.function_call is not None:
        name = "functions" if chat.functions is not None else "function_call"
        raise unsupported(f"'{name}' is not supported; use 'tools' and 'tool_choice'.", name)
    if chat.continue_final_message:
        _check_continuation(chat)


def _check_continuation(chat: ChatBody) -> None:
    if chat.add_generation_prompt:
        message = "'continue_final_message' and 'add_generation_prompt' exclude each other."
        raise invalid(message, "continue_final_message")
    if chat.messages[-1].role != "assistant":
        message = "'continue_final_message' needs an assistant message at the end."
        raise invalid(message, "continue_final_message")


def tool_options(chat: ChatBody, raw_tools: Any, *, can_parse: bool) -> ToolOptions | None:
    """The offered tools in the form the client sent them, or None; raises ApiError 400."""
    choice = chat.tool_choice
    named = isinstance(choice, NamedToolChoice)
    word = choice.function.name if isinstance(choice, NamedToolChoice) else choice or "auto"
    if not chat.tools:
        if named or word == "required":
            raise invalid("'tool_choice' asks for a call, but no 'tools' are given.", "tool_choice")
        return None
    if named and word not in {tool.function.name for tool in chat.tools}:
        raise invalid(f"No tool is named '{word[:128]}'.", "tool_choice.function.name")
    if not can_parse and (named or word == "required"):
        raise unsupported("This model has no tool parser, so no call can be forced.", "tool_choice")
    parallel = chat.parallel_tool_calls is not False and not named  # a named function is called once
    return ToolOptions(tools=tuple(raw_tools), choice=word, named=named, parallel=parallel)


def grammar(chat: ChatBody) -> GrammarSpec | None:
    """The grammar which `response_format` asks for; raises ApiError 400."""
    wanted = chat.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return GrammarSpec("json_object")
    if wanted.json_schema is None or wanted.json_schema.schema_ is None:
        raise invalid("A 'json_schema' format needs a schema.", "response_format.json_schema.schema")
    return GrammarSpec("json_schema", orjson.dumps(wanted.json_schema.schema_).decode())
