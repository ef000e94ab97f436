"""Put SGLang in a process of its own and its prompt tokenizer together."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from canon.tokens import PromptTokenizer
from engine_adapters.sglang_process.adapter import SGLangProcess
from engine_adapters.sglang_process.config import SGLangConfig
from gateway.prompts import PromptSource
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
    return Backend(await SGLangProcess.start(options.engine), prompts, options.name, model)


def sglang_prompts(options: SGLangOptions, folder: Path) -> PromptSource:
    """What makes the engine's prompts, of the tokenizer in `folder`; raises as `start_sglang`."""
    return PromptTokenizer.from_folder(folder, control_tokens_in_content=options.control_tokens_in_content)
