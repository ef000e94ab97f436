"""The text of a model's chat template, to tell which family of tool calls and thinking it belongs to."""

from pathlib import Path
from typing import Any

import orjson


def chat_template_text(folder: Path) -> str:
    """All chat templates of a tokenizer's folder, one after the other; empty where it has none."""
    files = sorted(folder.glob("chat_template*.jinja")) + sorted(
        folder.glob("additional_chat_templates/*.jinja")
    )
    return "\n".join(
        [*(file.read_text("utf-8") for file in files), *_from_config(folder / "tokenizer_config.json")]
    )


def _from_config(file: Path) -> list[str]:
    if not file.is_file():
        return []
    templates: Any = orjson.loads(file.read_bytes()).get("chat_template")
    if isinstance(templates, list):  # [{"name": ..., "template": ...}]
        templates = [entry.get("template") for entry in templates if isinstance(entry, dict)]
    else:
        templates = [templates]
    return [template for template in templates if isinstance(template, str)]
