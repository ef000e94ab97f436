"""Put SGLang in a process of its own and its prompt tokenizer together."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from canon.errors import TemplateError
from canon.tokens import ControlTokenScanner, PromptTokenizer
from engine_adapters.sglang_process.adapter import SGLangProcess, Typed
from engine_adapters.sglang_process.config import SGLangConfig
from engine_adapters.sglang_process.proof import Render
from gateway.prompts import PromptSource
from gateway.relay.control_tokens import ControlTokenCheck
from gateway.served import Backend


@dataclass(frozen=True, slots=True)
class SGLangOptions:
    """The engine's configuration and how its prompts are made."""

    engine: SGLangConfig
    name: str
    control_tokens_in_content: Literal["allow", "report", "reject"] = "report"


async def start_sglang(options: SGLangOptions, progress: Callable[[str], None]) -> Backend:
    """Start the engine, on the event loop that it will be asked on; takes as long as loading its model.

    Raises:
        EngineError, CanonError: the model or its template cannot be used; the message says what to do.
        OSError: SGLang's interpreter cannot be started, or the model cannot be read.
    """
    model = options.engine.model
    prompts = await asyncio.to_thread(sglang_prompts, options, model)
    progress(f"starting SGLang with {model.name}")
    render = await asyncio.to_thread(rendering, model)
    typed = None
    if options.control_tokens_in_content != "allow":
        typed = await asyncio.to_thread(_typed, model)
    return Backend(await SGLangProcess.start(options.engine, render, typed), prompts, options.name, model)


def _typed(folder: Path) -> Typed:
    check = ControlTokenCheck(ControlTokenScanner.from_folder(folder), "report")
    return lambda body: next(iter(check.found("chat", body)), None)


def rendering(folder: Path) -> Render:
    """What is compared with SGLang's own rendering: there special tokens in content always act."""
    return rendered(PromptTokenizer.from_folder(folder, control_tokens_in_content="allow"))


def rendered(tokenizer: PromptTokenizer) -> Render:
    """What `tokenizer` makes of chats."""

    def render(body: Mapping[str, Any]) -> Sequence[int] | None:
        try:
            prompt = tokenizer.chat(
                body["messages"],
                body.get("tools"),
                add_generation_prompt=not body.get("continue_final_message"),
                continue_final_message=bool(body.get("continue_final_message")),
                template_kwargs=body.get("chat_template_kwargs"),
            )
        except TemplateError:
            return None
        ids: list[int] = prompt.ids.tolist()
        return ids

    return render


def sglang_prompts(options: SGLangOptions, folder: Path) -> PromptSource:
    """What makes the engine's prompts, of the tokenizer in `folder`; raises as `start_sglang`."""
    return PromptTokenizer.from_folder(folder, control_tokens_in_content=options.control_tokens_in_content)
