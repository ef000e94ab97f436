"""Put the embedded engine and its prompt tokenizer together. Everything heavy is imported when it is called."""

import importlib.util
import os
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.models.progress import stage
from gateway.prompts import PromptSource
from gateway.served import EMBEDDED, Backend

_SPINS = "1000"  # some tens of microseconds: longer than the way from one operation to the next
_NEEDED = (
    "torch",
    "transformers",
    "safetensors",
    "gguf",
    "huggingface_hub",
    "llguidance",
    "psutil",
    "crc32c",
    "cryptography",
    "zstandard",
)


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """The engine's configuration and how its prompts are made."""

    engine: EmbeddedConfig
    chat_template: Path | None = None  # None: the model's own
    control_tokens_in_content: Literal["allow", "report", "reject"] = "report"
    name: str = EMBEDDED


def missing_packages() -> list[str]:
    """Packages of the `embedded` extra that are not installed."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def set_thread_waits(environ: MutableMapping[str, str]) -> None:
    """Let PyTorch's threads sleep soon when they wait for each other; has an effect before PyTorch is imported.

    GNU OpenMP spins for milliseconds instead. Where another process wants the CPU, the spinning thread keeps the one
    it waits for from running, and each of some hundred waits a token takes a time slice of the scheduler.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environ.keys():
        environ["GOMP_SPINCOUNT"] = _SPINS


def load_embedded(options: EmbeddedOptions, progress: Callable[[str], None]) -> Backend:
    """Load the model; takes seconds, so call it off the event loop.

    Raises:
        EngineError, CanonError: the model or its template cannot be used; the message says what to do.
        OSError: the template file cannot be read.
    """
    set_thread_waits(os.environ)
    with stage(progress, "importing PyTorch and Transformers"):
        from engine_adapters.embedded.adapter import EmbeddedAdapter

    engine = EmbeddedAdapter.load(options.engine, progress, _template(options))
    folder = engine.folder.tokenizer_path
    return Backend(engine, embedded_prompts(options, folder), options.name, folder)


def embedded_prompts(options: EmbeddedOptions, folder: Path) -> PromptSource:
    """What makes the engine's prompts, of the tokenizer in `folder`; raises as `load_embedded`."""
    from canon.tokens import PromptTokenizer

    return PromptTokenizer.from_folder(
        folder,
        chat_template=_template(options),
        control_tokens_in_content=options.control_tokens_in_content,
    )


def _template(options: EmbeddedOptions) -> str | None:
    return None if options.chat_template is None else options.chat_template.read_text("utf-8")
