"""What a forced choice lets a model write is a call that its parser reads, with arguments that fit the schema."""

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from engine_adapters.base import ToolOptions
from engine_adapters.embedded.output.detokenizer import IncrementalDetokenizer
from engine_adapters.embedded.output.tool_parsers import (
    CallArguments,
    CallStart,
    ContentPiece,
    ToolParser,
    tool_parser,
)
from engine_adapters.errors import InvalidRequestError
from tests.output_tokenizers import END, byte_tokenizer

WEATHER = {
    "type": "object",
    "properties": {
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "city": {"type": "string", "maxLength": 5},
    },
    "required": ["unit", "days"],
    "additionalProperties": False,
}


def tool(name: str, parameters: object = None, **more: object) -> Mapping[str, Any]:
    schema = {} if parameters is None else {"parameters": parameters}
    return {"type": "function", "function": {"name": name, **schema, **more}}


TOOLS = (tool("get_weather", WEATHER), tool("now"))


class Walker:
    """Random texts that grammars allow, as token ids without the end token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.token_to_id(END)
        self.engine = LLTokenizer(tokenizer.to_str(), eos_token=self.end)
        texts = [tokenizer.id_to_token(i) or "" for i in range(tokenizer.get_vocab_size())]
        # Quotes, brackets and the end are rare among all tokens; a model would choose them more often.
        self.likely = np.array([i == self.end or text.startswith(('"', "}")) for i, text in enumerate(texts)])

    def walk(self, grammar: str, seed: int, limit: int = 400) -> list[int]:
        matcher = LLMatcher(self.engine, grammar)
        assert not matcher.is_error(), matcher.get_error()
        choose = random.Random(seed)
        ids: list[int] = []
        while len(ids) < limit:
            allowed = np.frombuffer(matcher.compute_logit_bias(), dtype=np.uint8)[: len(self.likely)] > 0
            likely = allowed & self.likely
            among = likely if likely.any() and choose.random() < 0.5 else allowed
            token = int(choose.choice(np.flatnonzero(among)))
            if token == self.end:
                return ids
            assert matcher.consume_token(token), matcher.get_error()
            ids.append(token)
        raise AssertionError("the walk does not come to an end")


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))


def check_arguments(name: str, arguments: str) -> None:
    values = json.loads(arguments)
    if name == "now":
        assert values == {}
        return
    assert name == "get_weather"
    assert list(values) == [key for key in WEATHER["properties"] if key in values], "in the schema's order"  # type: ignore[attr-defined]
    assert values["unit"] in ("C", "F")
    assert type(values["days"]) is int
    assert 1 <= values["days"] <= 9
    assert len(values.get("city", "")) <= 5
    assert set(values) <= {"unit", "days", "city"}


def check_walks(walker: Walker, parser_class: type[ToolParser], parallel: bool, seeds: int) -> None:
    grammar = parser_class.grammar(ToolOptions(TOOLS, "required", parallel=parallel), walker.tokenizer)
    assert grammar is not None
    for seed in range(seeds):
        detokenizer = IncrementalDetokenizer(walker.tokenizer, keep=parser_class.special_tokens)
        parser = parser_class(parallel=True)
        ids = walker.walk(grammar, seed)
        pieces = [piece for i in ids for piece in parser.push(detokenizer.push(i))] + parser.finish()
        starts = [piece for piece in pieces if isinstance(piece, CallStart)]
        assert starts
        assert not [piece for piece in pieces if isinstance(piece, ContentPiece)]
        assert parallel or len(starts) == 1
        for start in starts:
            texts = [p.text for p in pieces if isinstance(p, CallArguments) and p.call == start.call]
            check_arguments(start.name, "".join(texts))


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize(
    ("name", "tags", "special"),
    [
        ("hermes", (), False),
        ("hermes", ("<tool_call>", "</tool_call>"), False),
        ("hermes", ("<tool_call>", "</tool_call>"), True),
        ("mistral", (), False),
        ("mistral", ("[TOOL_CALLS]",), True),
        ("mistral", ("[TOOL_CALLS]", "[ARGS]"), True),
        ("llama3_json", (), False),
    ],
)
def test_whatever_the_grammar_allows_is_read_back_as_valid_calls(
    name: str, tags: tuple[str, ...], special: bool, parallel: bool
) -> None:
    check_walks(Walker(byte_tokenizer(tags, special)), tool_parser(name), parallel, seeds=10)


def test_the_same_over_a_real_models_vocabulary(smollm2: Tokenizer) -> None:
    check_walks(Walker(smollm2), tool_parser("hermes"), parallel=True, seeds=5)


def test_a_named_choice_allows_that_function_alone() -> None:
    tokenizer = byte_tokenizer()
    grammar = tool_parser("hermes").grammar(ToolOptions(TOOLS, "now", named=True, parallel=False), tokenizer)
    assert grammar is not None
    text = tokenizer.decode(Walker(tokenizer).walk(grammar, 0))
    assert text == '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_free_choice_needs_no_grammar(choice: str) -> None:
    for name in ("hermes", "mistral", "llama3_json"):
        assert tool_parser(name).grammar(ToolOptions(TOOLS, choice), byte_tokenizer()) is None


def nested(levels: int) -> object:
    schema: object = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def chain(length: int) -> object:
    """References, each to the next one: a native stack would overflow on its way down."""
    links: dict[str, object] = {str(at): {"$ref": f"#/$defs/{at + 1}"} for at in range(length)}
    return links | {str(length): {"type": "null"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "object", "properties": 5},
        {"type": "string"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "number", "minimum": math.nan}}},
        ["not", "a", "schema"],
        {"type": "object", "properties": {"a": nested(200)}},
        {"type": "object", "properties": {"a": nested(3000)}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": chain(5000)},
    ],
)
def test_a_bad_schema_is_the_requests_fault_and_named(schema: object) -> None:
    tools = ToolOptions((tool("good"), tool("bad", schema)), "required")
    with pytest.raises(InvalidRequestError) as caught:
        tool_parser("hermes").grammar(tools, byte_tokenizer())
    assert caught.value.param == "tools[1].function.parameters"


@pytest.mark.parametrize("broken", [{"type": "custom"}, {"function": {}}, {"function": {"name": 5}}])
def test_a_tool_that_is_no_function_is_named(broken: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tool_parser("hermes").grammar(ToolOptions((tool("good"), broken), "required"), byte_tokenizer())
    assert caught.value.param == "tools[1].function"


def test_a_bad_schema_of_a_tool_that_is_not_chosen_does_no_harm() -> None:
    tools = ToolOptions((tool("bad", {"type": "nonsense"}), tool("good")), "good", named=True)
    assert tool_parser("hermes").grammar(tools, byte_tokenizer())


def test_an_unknown_keyword_is_refused_only_where_strict() -> None:
    schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    tokenizer = byte_tokenizer()
    assert tool_parser("hermes").grammar(ToolOptions((tool("f", schema),), "required"), tokenizer)
    with pytest.raises(InvalidRequestError):
        tool_parser("hermes").grammar(ToolOptions((tool("f", schema, strict=True),), "required"), tokenizer)


@pytest.mark.parametrize("options", [ToolOptions((), "required"), ToolOptions(TOOLS, "other", named=True)])
def test_a_choice_that_cannot_be_met_names_tool_choice(options: ToolOptions) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tool_parser("hermes").grammar(options, byte_tokenizer())
    assert caught.value.param == "tool_choice"
