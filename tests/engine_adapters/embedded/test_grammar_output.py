"""What comes out under a grammar always parses and fits the schema, whatever the model wants."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from engine_adapters.base import GrammarSpec, SamplingParams
from engine_adapters.embedded.sampling import GrammarCompiler, GrammarMatcher
from tests.engine_adapters.embedded.grammar_harness import (
    BYTE_LEVEL_EOS,
    RandomModel,
    byte_level_tokenizer,
    write,
)

Fits = Callable[[Any], bool]

SMOLLM2_EOS = (2, 0)


def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_tree(node: Any) -> bool:
    return (
        list(node) == ["value", "children"]
        and is_int(node["value"])
        and len(node["children"]) <= 2
        and all(is_tree(child) for child in node["children"])
    )


def is_person(value: Any) -> bool:
    return (
        list(value) == ["zip", "name", "age", "tags"]  # the schema's order, not the alphabet's
        and re.fullmatch(r"[0-9]{5}", value["zip"]) is not None
        and isinstance(value["name"], str)
        and is_int(value["age"])
        and 0 <= value["age"] <= 150
        and len(value["tags"]) <= 3
        and set(value["tags"]) <= {"größe", "日本", "👩‍👩‍👧", 'a"b\\c\n'}
    )


def is_shape(value: Any) -> bool:
    if value["kind"] == "circle":
        return list(value) == ["kind", "radius"] and isinstance(value["radius"], int | float)
    return list(value) == ["kind", "sides"] and value["kind"] == "polygon" and 3 <= value["sides"] <= 9


def is_matrix(value: Any) -> bool:
    return 1 <= len(value) <= 3 and all(len(row) == 2 and all(map(is_int, row)) for row in value)


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS: dict[str, tuple[dict[str, Any], Fits]] = {
    "person": (
        closed(
            {
                "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
                "name": {"type": "string"},
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
                "tags": {
                    "type": "array",
                    "items": {"enum": ["größe", "日本", "👩‍👩‍👧", 'a"b\\c\n']},
                    "maxItems": 3,
                },
            }
        ),
        is_person,
    ),
    "tree": (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": closed(
                    {
                        "value": {"type": "integer"},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                    }
                )
            },
        },
        is_tree,
    ),
    "matrix": (
        {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        },
        is_matrix,
    ),
    "shape": (
        {
            "oneOf": [
                closed({"kind": {"const": "circle"}, "radius": {"type": "number"}}),
                closed(
                    {"kind": {"const": "polygon"}, "sides": {"type": "integer", "minimum": 3, "maximum": 9}}
                ),
            ]
        },
        is_shape,
    ),
    "odd names": (
        closed({'quo"te': {"type": "boolean"}, "back\\slash": {"type": "null"}, "ключ\n": {"const": 1}}),
        lambda value: list(value) == ['quo"te', "back\\slash", "ключ\n"] and value["ключ\n"] == 1,
    ),
    "short text": (
        {"type": "string", "minLength": 2, "maxLength": 5},
        lambda value: isinstance(value, str) and 2 <= len(value) <= 5,
    ),
    "optional": (
        {
            "type": "object",
            "properties": {"b": {"type": "boolean"}, "a": {"type": ["integer", "null"]}},
            "additionalProperties": False,
        },
        lambda value: list(value) in ([], ["b"], ["a"], ["b", "a"]),
    ),
    "date": (
        closed(
            {"on": {"type": "string", "format": "date"}, "secret": {"type": "string", "format": "password"}}
        ),
        lambda value: re.fullmatch(r"\d{4}-\d\d-\d\d", value["on"]) is not None,
    ),
}


@dataclass(frozen=True, slots=True)
class Setup:
    """A tokenizer with all that goes with it."""

    tokenizer: Tokenizer
    compiler: GrammarCompiler
    model: RandomModel
    eos: tuple[int, ...]

    def write(self, matcher: GrammarMatcher, seed: int) -> str:
        written = write(self.tokenizer, matcher, self.model, params=SamplingParams(seed=seed), eos=self.eos)
        assert written.ended, written.text[-300:]
        return written.text


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Rows this small gain nothing from more threads, and lose much to them on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def by_bytes() -> Setup:
    tokenizer = byte_level_tokenizer()
    compiler = GrammarCompiler(tokenizer, 258, BYTE_LEVEL_EOS)
    return Setup(tokenizer, compiler, RandomModel(tokenizer, 258), BYTE_LEVEL_EOS)


@pytest.fixture(scope="module")
def by_smollm2(smollm2_folder: Path) -> Setup:
    path = smollm2_folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    return Setup(
        tokenizer, GrammarCompiler(path, 49_152, SMOLLM2_EOS), RandomModel(tokenizer, 49_152), SMOLLM2_EOS
    )


@pytest.fixture(params=["by_bytes", "by_smollm2"])
def setup(request: pytest.FixtureRequest) -> Setup:
    found: Setup = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_a_random_model_writes_fits_the_schema(setup: Setup, name: str) -> None:
    schema, fits = SCHEMAS[name]
    for seed in range(5):
        text = setup.write(setup.compiler.compile(GrammarSpec("json_schema", json.dumps(schema))), seed)
        assert fits(json.loads(text)), text


def test_json_object_gives_an_object(setup: Setup) -> None:
    for seed in range(5):
        text = setup.write(setup.compiler.compile(GrammarSpec("json_object")), seed)
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("blank", [" ", "\n", "\t"])
def test_a_model_that_wants_only_blanks_still_gets_to_the_end(by_bytes: Setup, blank: str) -> None:
    schema = closed({"a": {"enum": [1, 2]}, "b": {"type": "array", "items": {"type": "null"}, "maxItems": 3}})
    wanted = torch.zeros(258)
    wanted[by_bytes.tokenizer.encode(blank).ids] = 50.0
    matcher = by_bytes.compiler.compile(GrammarSpec("json_schema", json.dumps(schema)))
    greedy = SamplingParams(temperature=0.0)
    written = write(
        by_bytes.tokenizer, matcher, lambda _: wanted, params=greedy, eos=BYTE_LEVEL_EOS, steps=400
    )
    assert written.ended
    assert json.loads(written.text)["a"] in (1, 2)
    assert max(map(len, re.findall(r"\s+", written.text)), default=0) <= 17


def test_compact_and_indented_json_both_pass(by_bytes: Setup) -> None:
    value = {"a": [1, {"b": "c"}], "d": {}}
    for text in (json.dumps(value), json.dumps(value, separators=(",", ":")), json.dumps(value, indent=4)):
        matcher = by_bytes.compiler.compile(GrammarSpec("json_object"))
        for token_id in by_bytes.tokenizer.encode(text).ids:
            assert not matcher.finished
            matcher.accept(token_id)
        assert matcher.finished


def test_a_forced_call_in_lark_gives_tags_around_arguments(setup: Setup) -> None:
    schema = json.dumps(closed({"city": {"type": "string", "maxLength": 8}}))
    lark = f'start: "<tool_call>" %json {schema} "</tool_call>"'
    text = setup.write(setup.compiler.compile_lark(lark), 3)
    arguments = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert len(arguments) == len(text) - len("<tool_call></tool_call>")
    assert list(json.loads(arguments)) == ["city"]
