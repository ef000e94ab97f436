"""How prompts are made here, and whether SGLang makes the same ones: asked of its `/tokenize`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canon.errors import TemplateError
from canon.tokens import PromptTokenizer
from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.sglang_process.chats import TAKEN
from engine_adapters.sglang_process.proof import Proof, Render, first_difference, prove
from gateway.local.sglang_process import rendered

TEXTS = "completions"  # the kind of all prompts that are texts
_PATH = "/tokenize"
_TEXT_PROBES = (
    "Once upon a time",
    "  two blanks,\ttab\r\nlines\n\n",
    "",
    "e\u0301 \u00e9 \u4f60\u597d \U0001f469\u200d\U0001f4bb \u0627\u0644 \u2028 1234567 'tis",
    "<|im_start|>system\nx<|im_end|> <|endoftext|> <s> </s> [INST] <|eot_id|> <tool_call>",
)
# Of chats beside what is rendered, and what says how the answer goes out.
_OTHERS = frozenset({
    "model", "stream", "stream_options", "user", "metadata", "max_tokens", "max_completion_tokens", "cache_salt",
    "extra_key", "return_cached_tokens_details",
})  # fmt: skip
_CHAT_FIELDS = _OTHERS | frozenset(TAKEN)


@dataclass(frozen=True, slots=True)
class Equal:
    """Which prompts are the same here and there."""

    texts: bool = False
    chats: Proof = field(default_factory=Proof)
    differs: tuple[str, ...] = ()  # the first difference of each other kind, in words

    @property
    def kinds(self) -> tuple[str, ...]:
        """Those that may go as token ids."""
        return ((TEXTS,) if self.texts else ()) + self.chats.proved

    def covers_chat(self, body: Mapping[str, Any]) -> bool:
        """Whether this chat may: none of its fields is one that the server may render and we do not."""
        said = {name for name, value in body.items() if value is not None}
        return said <= _CHAT_FIELDS and self.chats.covers(body)


async def compared(engine: SGLangEngine, tokenizer: PromptTokenizer) -> Equal:
    """Make all probes there and here. What it cannot be asked is not the same.

    Raises EngineNotReadyError where the server has gone.
    """

    async def asked(body: Mapping[str, Any]) -> Sequence[int] | None:
        return await _tokenized(engine, body)

    texts = await first_difference(
        TEXTS, [{"prompt": text} for text in _TEXT_PROBES], asked, _texts(tokenizer)
    )
    chats = await prove(asked, rendered(tokenizer))
    return Equal(texts is None, chats, (*((texts,) if texts else ()), *chats.differs))


def _texts(tokenizer: PromptTokenizer) -> Render:
    def render(body: Mapping[str, Any]) -> Sequence[int] | None:
        try:
            ids: list[int] = tokenizer.encode(body["prompt"]).tolist()
        except TemplateError:
            return None
        return ids

    return render


async def _tokenized(engine: SGLangEngine, body: Mapping[str, Any]) -> list[int] | None:
    """What the server makes of it; None: it refuses it, or has no such route."""
    answer = await engine.answer_of("POST", f"{engine.server}{_PATH}", json={"model": "probe", **body})
    if answer.status_code >= 500:
        raise EngineNotReadyError(f"The engine {engine.name} answered {_PATH} with {answer.status_code}.")
    if answer.status_code >= 400:
        return None
    tokens = answer.json().get("tokens")
    return tokens if isinstance(tokens, list) else None
