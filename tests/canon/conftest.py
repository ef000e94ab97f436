"""Models' folders for the tests of canon: trained tokenizers with the data folder's chat templates."""

from collections.abc import Callable
from pathlib import Path

import pytest

from canon.tokens import PromptTokenizer
from tests.canon.sample_tokenizers import sample, template, write_folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """`model_folder("byte_level", "hermes")` is a folder with that tokenizer and chat template."""
    made: dict[tuple[str, str], Path] = {}

    def make(kind: str, chat_template: str) -> Path:
        key = (kind, chat_template)
        if key not in made:
            made[key] = write_folder(
                tmp_path_factory.mktemp(f"{kind}-{chat_template}"), sample(kind), template(chat_template)
            )
        return made[key]

    return make


@pytest.fixture(scope="session")
def prompt_tokenizer(model_folder: Callable[[str, str], Path]) -> Callable[..., PromptTokenizer]:
    """`prompt_tokenizer("hermes", kind="byte_level")`, loaded once a session."""
    made: dict[tuple[str, str], PromptTokenizer] = {}

    def load(chat_template: str, kind: str = "byte_level") -> PromptTokenizer:
        key = (kind, chat_template)
        if key not in made:
            made[key] = PromptTokenizer.from_folder(model_folder(kind, chat_template))
        return made[key]

    return load
