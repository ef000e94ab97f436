"""How SGLang is run in a process of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class SGLangConfig:
    """One engine."""

    python: Path  # the interpreter SGLang is installed for
    model: Path  # a folder with tokenizer.json in it
    served_name: str | None = None  # None: the folder's name
    engine: Mapping[str, Any] = field(
        default_factory=dict
    )  # arguments of `sglang.Engine`, by their Python names
    environ: Mapping[str, str] = field(default_factory=dict)  # added to ours
    tool_parser: str | None = None  # SGLang's name of it; None: found in the chat template
    start_s: float = 1800.0  # until the model must be loaded
    max_requests: int = 1024  # at once; more are refused
    restarts: int = 3  # in a row, after an unexpected end; then it stays down
    restart_wait_s: float = 1.0  # before the first; doubled each time
