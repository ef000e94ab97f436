"""Every way in which thinking, tools and a response format meet: what an answer may be, token by token."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from engine_adapters.base import GenerateRequest, GrammarSpec, SamplingParams, ToolOptions
from engine_adapters.embedded.model_family import ModelFamily
from engine_adapters.embedded.request_grammar import RequestGrammars
from engine_adapters.embedded.sampling import GrammarCompiler
from engine_adapters.errors import InvalidRequestError
from tests.output_tokenizers import END, byte_tokenizer

CALLS = "{% if tools %}<tool_call></tool_call>{% endif %}"
THINKING = "<think></think>"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "integer"}, "a": {"type": "string", "format": "password"}},
    "required": ["b", "a"],
    "additionalProperties": False,
}
ANSWER = '{"b": 1, "a": "x"}'
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nso {it} is\n</think>\n\n"


class Answers:
    """What one request's grammar allows over a byte tokenizer whose tags are tokens of their own."""

    def __init__(self, template: str, **request: Any) -> None:
        self.tokenizer = byte_tokenizer(["<tool_call>", "</tool_call>", "<think>", "</think>"])
        self.end = self.tokenizer.token_to_id(END)
        vocabulary = self.tokenizer.get_vocab_size()
        compiler = GrammarCompiler(self.tokenizer, vocabulary, (self.end,))
        self.grammars = RequestGrammars(compiler, ModelFamily(template, self.tokenizer, None))
        sampling = SamplingParams(grammar=request.pop("grammar", None), n=request.pop("n", 1))
        ids = np.zeros(1, dtype=np.int32)
        self.request = GenerateRequest("r", "chat", "m", ids, sampling, **request)

    def allow(self, text: str) -> bool:
        """Whether `text` may be a whole answer."""
        (matcher,) = asyncio.run(self.grammars.compile(self.request))
        if matcher is None:
            return True
        for token in [*self.tokenizer.encode(text, add_special_tokens=False).ids, self.end]:
            mask = matcher.mask()
            if matcher.finished:
                return bool(token == self.end)
            if not mask[token // 8] >> (token % 8) & 1:
                return False
            matcher.accept(token)
        return True


def tools(choice: str = "auto", **options: Any) -> ToolOptions:
    return ToolOptions((TOOL,), choice, **options)


FORMAT = GrammarSpec("json_schema", json.dumps(SCHEMA))


@pytest.mark.parametrize("template", [CALLS, CALLS + THINKING])
@pytest.mark.parametrize(
    ("fields", "answer", "call", "prose"),
    [
        ({}, True, True, True),
        ({"tools": tools()}, True, True, True),
        ({"tools": tools("none")}, True, True, True),
        ({"grammar": FORMAT}, True, False, False),
        ({"grammar": FORMAT, "tools": tools("none")}, True, False, False),
        ({"grammar": FORMAT, "tools": tools()}, True, True, False),
        ({"grammar": FORMAT, "tools": tools("required")}, False, True, False),
        ({"grammar": FORMAT, "tools": tools("look", named=True)}, False, True, False),
        ({"tools": tools("required")}, False, True, False),
    ],
    ids=lambda fields: str(fields)[:80] if isinstance(fields, dict) else None,
)
def test_an_answer_is_what_tools_and_format_leave_it_to_be(
    template: str, fields: dict[str, Any], answer: bool, call: bool, prose: bool
) -> None:
    answers = Answers(template, **fields)
    assert (answers.allow(ANSWER), answers.allow(CALL), answers.allow("Hi")) == (answer, call, prose)
    if template.endswith(THINKING):
        assert (answers.allow(THOUGHT + ANSWER), answers.allow(THOUGHT + CALL)) == (answer, call)


def test_thinking_that_the_prompt_began_is_free_and_the_answer_behind_it_is_not() -> None:
    answers = Answers(THINKING, grammar=FORMAT, starts_in_reasoning=True)
    assert answers.allow("so {it} is\n</think>\n\n" + ANSWER)
    assert not answers.allow("so {it} is\n</think>\n\nHi")


@pytest.mark.parametrize("template", ["", THINKING])
def test_blanks_between_json_tokens_are_bounded_behind_thinking_as_well(template: str) -> None:
    loose = SCHEMA | {"x-guidance": {"whitespace_pattern": r"\x20*"}}
    answers = Answers(template, grammar=GrammarSpec("json_schema", json.dumps(loose)))
    assert answers.allow('{\n  "b": 1,\n  "a": "x"}')
    assert not answers.allow('{      "b": 1, "a": "x"}')


@pytest.mark.parametrize("template", ["", THINKING])
def test_a_schema_that_cannot_be_enforced_is_refused_behind_thinking_as_well(template: str) -> None:
    answers = Answers(template, grammar=GrammarSpec("json_schema", '{"type": "array", "uniqueItems": true}'))
    with pytest.raises(InvalidRequestError) as refused:
        answers.allow("[]")
    assert refused.value.param == "response_format.json_schema.schema"


@pytest.mark.parametrize("template", ["", THINKING])
def test_json_object_is_any_object(template: str) -> None:
    answers = Answers(template, grammar=GrammarSpec("json_object"))
    assert answers.allow('{"any": [1, {"thing": null}]}')
    assert not answers.allow("[1]")


def test_each_choice_has_a_matcher_of_its_own() -> None:
    answers = Answers("", grammar=FORMAT, n=3)
    matchers = asyncio.run(answers.grammars.compile(answers.request))
    assert len({id(matcher) for matcher in matchers}) == 3


def test_a_call_cannot_be_forced_where_its_form_is_not_known() -> None:
    answers = Answers("", tools=tools("required"))
    with pytest.raises(InvalidRequestError) as refused:
        answers.allow(CALL)
    assert refused.value.param == "tool_choice"
