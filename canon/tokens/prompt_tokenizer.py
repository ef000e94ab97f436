"""A model's chat template and tokenizer: requests in, token ids out."""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from canon.errors import TemplateError
from canon.results import Finding
from canon.tokens.conversation import ConversationForm
from canon.tokens.dropped import refuse_dropped
from canon.tokens.encoder import PromptEncoder
from canon.tokens.lexemes import has_lexemes
from canon.tokens.limits import ChatLimits
from canon.tokens.memo import EncodingMemo
from canon.tokens.model_folder import ModelFolder, read_model_folder
from canon.tokens.plain_data import PlainCopy, check_surrogates
from canon.tokens.prefix_hazards import prefix_hazards
from canon.tokens.rendering import Conversation, RenderedChat, render_controlled, render_text, role_names
from canon.tokens.sandbox import RenderClock
from canon.tokens.stand_ins import ControlTokens
from canon.tokens.steps import Steps, finished
from canon.tokens.surround import Surround
from canon.tokens.template import ChatTemplate
from canon.tokens.thinking import ends_in_reasoning, find_thinking_tags
from canon.tokens.tokenizer_set import TokenizerSet
from canon.tokens.traits import find_traits, takes_part_kind
from canon.tokens.written_tokens import written_tokens

ControlTokensInContent = Literal["allow", "report", "reject"]

# What a client may not set through template variables: the call's own parameters.
_RESERVED = frozenset(
    (
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "messages",
        "tokenize",
        "tools",
    )
)


class ChatPrompt(msgspec.Struct, frozen=True):
    """A rendered chat and its tokens."""

    ids: NDArray[np.int32]  # [prompt tokens]; not to be written to
    text: str
    starts_in_reasoning: bool  # the text ends inside an opened thinking tag
    # Special tokens written in the request, by path, such as "messages[1].content"; they stayed text.
    control_tokens: Mapping[str, int] = {}


class _Chat:
    """One template with all that is known about it."""

    def __init__(
        self, source: str, folder: ModelFolder, tokenizers: TokenizerSet, limits: ChatLimits
    ) -> None:
        self.template = ChatTemplate(source, folder.variables, limits)
        self.tokens = ControlTokens(tokenizers.special_ids, self.template, folder.variables)
        self.traits = find_traits(self.template)
        takes_part = lru_cache(maxsize=64)(
            lambda kind: takes_part_kind(self.template, {"type": kind, kind: ""})
        )
        self.form = ConversationForm(
            self.traits, role_names(self.template), lambda part: takes_part(str(part["type"])), limits
        )


class PromptTokenizer:
    """Renders chats with the model's own template and encodes text. Thread-safe; CPU-bound, so call it off the loop.

    Special tokens written in messages, tools or template variables stay text and are told of in the prompt; where
    `control_tokens_in_content` is "reject", the request is refused for them, and with "allow" they act. Added tokens
    that are not special (Qwen's `<tool_call>`) are words of the vocabulary like others and keep their ids wherever
    they stand.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        chat_template: str | None = None,
        control_tokens_in_content: ControlTokensInContent = "report",
        limits: ChatLimits | None = None,
        memo_bytes: int = 64 * 1024 * 1024,
        tells_written: bool = True,
    ) -> None:
        self._limits = limits or ChatLimits()
        self._folder = folder
        self._control_in_content: ControlTokensInContent = control_tokens_in_content
        self._tells_written = tells_written or control_tokens_in_content == "reject"
        self._tokenizers = TokenizerSet(folder)
        self._memo = EncodingMemo(memo_bytes)
        self._encoder = PromptEncoder(self._tokenizers, self._memo)
        self._surround = Surround(self._tokenizers.plain)
        self._chat, self._tool_chat = self._chats(chat_template)

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        *,
        chat_template: str | None = None,
        control_tokens_in_content: ControlTokensInContent = "report",
        limits: ChatLimits | None = None,
        memo_bytes: int = 64 * 1024 * 1024,
        tells_written: bool = True,
    ) -> "PromptTokenizer":
        """Reads a model's folder (Hugging Face layout). Raises `ModelFolderError`.

        `chat_template` is the operator's: a template, or the name of one that the folder has. `memo_bytes` bounds
        the memory of what was encoded. With `tells_written` False, prompts do not tell which special tokens were
        written in requests: whoever looks for them elsewhere need not pay for it twice.
        """
        return cls(
            read_model_folder(folder),
            chat_template=chat_template,
            control_tokens_in_content=control_tokens_in_content,
            limits=limits,
            memo_bytes=memo_bytes,
            tells_written=tells_written,
        )

    def _chats(self, chat_template: str | None) -> tuple[_Chat | None, _Chat | None]:
        """The template for chats, and the one for chats with tools."""
        templates = dict(self._folder.templates)
        if chat_template is not None:
            templates = {"default": templates.get(chat_template, chat_template)}
        made = {
            name: _Chat(templates[name], self._folder, self._tokenizers, self._limits)
            for name in ("default", "tool_use")
            if name in templates
        }
        default = made.get("default")
        return default, made.get("tool_use", default)

    @property
    def has_chat_template(self) -> bool:
        return self._chat is not None

    @property
    def accepts_tools(self) -> bool:
        """Does the template do anything with tools?"""
        return self._tool_chat is not None and self._tool_chat.traits.takes_tools

    @cached_property
    def thinking_tags(self) -> tuple[str, str] | None:
        """The opening and the closing tag, where the template or the vocabulary has a pair."""
        source = self._chat.template.source if self._chat else ""
        return find_thinking_tags(source, {token.content for token in self._tokenizers.added.values()})

    @cached_property
    def prefix_hazards(self) -> tuple[Finding, ...]:
        """What the model's chat templates themselves do to prefixes, each kind once."""
        chats = (self._chat, self._tool_chat)
        found = [finding for chat in chats if chat is not None for finding in prefix_hazards(chat.template)]
        return tuple(dict.fromkeys(found))

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        scope: str = "",
        most: int | None = None,
    ) -> ChatPrompt:
        """Messages and tools in OpenAI's form to a prompt. Raises `TemplateError` for what the model cannot take.

        Encodings are shared only within one `scope`. Where it is certain that there are more than `most` tokens, the
        rest is not encoded: `PromptTooLongError`.
        """
        return finished(
            self.chat_steps(
                messages,
                tools,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=template_kwargs,
                scope=scope,
                most=most,
            )
        )

    def chat_steps(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        scope: str = "",
        most: int | None = None,
    ) -> Steps[ChatPrompt]:
        """As `chat`, with a stop between its parts."""
        if continue_final_message and add_generation_prompt:
            raise TemplateError(
                "continue_final_message and add_generation_prompt exclude each other",
                "continue_final_message",
            )
        chat = self._tool_chat if tools else self._chat
        if chat is None:
            raise TemplateError("this model has no chat template", "messages")
        copy = PlainCopy(self._limits)
        conversation = Conversation(
            messages=chat.form.messages(messages, copy),
            tools=chat.form.tools(tools, copy),
            extra=self._extra(template_kwargs or {}, copy),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )
        written = self._written(chat, messages, tools, template_kwargs or {})
        yield
        clock = self._clock(chat, conversation)
        text = render_text(chat.template, conversation, clock)
        yield
        rendered = self._controlled(chat, conversation, text, clock, [str(each["role"]) for each in messages])
        yield
        return ChatPrompt(
            ids=self._encode_rendered(rendered, scope, most),
            text=rendered.text,
            starts_in_reasoning=ends_in_reasoning(
                rendered.text, self.thinking_tags, _continued(conversation)
            ),
            control_tokens=written,
        )

    def _extra(self, template_kwargs: Mapping[str, Any], copy: PlainCopy) -> dict[str, Any]:
        for name in template_kwargs:
            if name in _RESERVED or name in self._folder.variables:
                raise TemplateError(
                    f"{name!r:.60} cannot be set by a request", f"chat_template_kwargs.{name}"
                )
        extra: dict[str, Any] = copy.copy(template_kwargs, "chat_template_kwargs")
        return extra

    def _written(
        self,
        chat: _Chat,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        template_kwargs: Mapping[str, Any],
    ) -> dict[str, int]:
        if self._control_in_content == "allow" or not self._tells_written:
            return {}
        content = {"messages": list(messages), "tools": tools, "chat_template_kwargs": template_kwargs}
        found = written_tokens(chat.tokens.scanner, content)
        if found and self._control_in_content == "reject":
            raise TemplateError(
                "special tokens of this model may not be written in a request", next(iter(found))
            )
        return found

    def _clock(self, chat: _Chat, conversation: Conversation) -> RenderClock:
        calls = [message["tool_calls"] for message in conversation.messages if "tool_calls" in message]
        return chat.template.clock(keep_lexemes=has_lexemes(calls))

    def _controlled(
        self, chat: _Chat, conversation: Conversation, text: str, clock: RenderClock, roles: list[str]
    ) -> RenderedChat:
        """`text` is the plain rendering."""

        def render(what: Conversation) -> str:
            return render_text(chat.template, what, clock)

        refuse_dropped(conversation, text, render, roles)
        if self._control_in_content == "allow":
            return RenderedChat(text, [], suspicious=False)
        return render_controlled(chat.template, conversation, chat.tokens, text, clock)

    def forget(self) -> int:
        """Drop all encodings that are remembered, of every scope; how many there were."""
        return self._memo.clear()

    def _encode_rendered(self, rendered: RenderedChat, scope: str, most: int | None) -> NDArray[np.int32]:
        check_surrogates(rendered.text, "messages")
        if self._control_in_content == "allow":
            return self._encoder.encode(rendered.text, scope, most)
        return self._encoder.encode_controlled(
            rendered.text, rendered.control, scope, most, suspicious=rendered.suspicious
        )

    def encode(
        self, text: str, *, add_special_tokens: bool = True, scope: str = "", most: int | None = None
    ) -> NDArray[np.int32]:
        """int32 [tokens], as the tokenizer itself encodes `text`; special tokens in it act as such.

        Raises `TemplateError` (param `prompt`) for lone surrogates and for texts past the limit, and as `chat` where
        there are more than `most` tokens.
        """
        if len(text) > self._limits.characters:
            raise TemplateError(f"the prompt is longer than {self._limits.characters} characters", "prompt")
        check_surrogates(text, "prompt")
        ids = self._encoder.encode(text, scope, most)
        return self._surround.around(ids) if add_special_tokens else ids

    @property
    def vocabulary(self) -> int:
        """One more than the highest token id there is, added ones included. Goes through all of them."""
        return 1 + max(self._tokenizers.plain.get_vocab(with_added_tokens=True).values(), default=-1)

    def decode(self, ids: ArrayLike, *, skip_special_tokens: bool = False) -> str:
        """The text of `ids`, [tokens]."""
        listed = np.asarray(ids, dtype=np.int64).tolist()
        return self._tokenizers.plain.decode(listed, skip_special_tokens=skip_special_tokens)


def _continued(conversation: Conversation) -> str | None:
    """The assistant's text that the model is to go on from."""
    if not conversation.continue_final_message:
        return None
    content = conversation.messages[-1].get("content")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
