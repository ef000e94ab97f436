"""Put the embedded engine and its prompt tokenizer together. Everything heavy is imported when it is called."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine_adapters.embedded.config import EmbeddedConfig
from gateway.served import Backend

_NEEDED = ("torch", "transformers", "safetensors", "gguf", "llguidance", "psutil")


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """The engine's configuration and how its prompts are made."""

    engine: EmbeddedConfig
    chat_template: Path | None = None  # None: the model's own
    control_tokens_in_content: Literal["text", "allow"] = "text"


def missing_packages() -> list[str]:
    """Packages of the `embedded` extra that are not installed."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def load_embedded(options: EmbeddedOptions, progress: Callable[[str], None]) -> Backend:
    """Load the model; takes seconds, so call it off the event loop.

    Raises:
        EngineError, CanonError: the model or its template cannot be used; the message says what to do.
        OSError: the template file cannot be read.
    """
    from canon.tokens import PromptTokenizer
    from engine_adapters.embedded.adapter import EmbeddedAdapter

    template = None if options.chat_template is None else options.chat_template.read_text("utf-8")
    engine = EmbeddedAdapter.load(options.engine, progress, template)
    prompts = PromptTokenizer.from_folder(
        engine.folder.tokenizer_path,
        chat_template=template,
        control_tokens_in_content=options.control_tokens_in_content,
    )
    return Backend(engine, prompts)
