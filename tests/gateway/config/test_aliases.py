"""`aliases:` in the configuration file."""

from pathlib import Path

import pytest

from gateway.aliases import Alias
from gateway.config.build import settings_of
from tests.gateway.config.test_load import errors, load

ENGINES = """
        engines:
          - {name: a, kind: vllm, url: "http://127.0.0.1:1", models: [one]}
          - {name: b, kind: vllm, url: "http://127.0.0.1:2"}
"""


def test_names_stand_for_a_model_of_an_engine(tmp_path: Path) -> None:
    text = ENGINES + "        aliases: {gpt-4o: {engine: a, model: one}, org/x: {engine: b, model: any}}\n"
    assert settings_of(load(tmp_path, text)).aliases == {
        "gpt-4o": Alias("a", "one"),
        "org/x": Alias("b", "any"),
    }


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ("{x: {engine: c, model: one}}", "aliases: 'x' stands for a model of 'c'; there are a, b"),
        ("{one: {engine: a, model: one}}", "aliases: 'one' is the name of a model"),
        ("{x: {engine: a, model: two}}", "aliases: 'x' stands for 'two', which a does not have"),
        ("{x: {engine: a}}", "aliases.x.model: field required"),
        ("{x: {engine: a, model: one, more: 1}}", "aliases.x.more: there is no such key"),
    ],
)
def test_an_alias_that_cannot_be_is_named(tmp_path: Path, aliases: str, message: str) -> None:
    assert errors(tmp_path, ENGINES + f"        aliases: {aliases}\n") == (message,)
