"""The compiler and its matchers: masks, ends, limits, refusals, threads."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from engine_adapters.base import GrammarSpec, SamplingParams
from engine_adapters.embedded.sampling import (
    GrammarCompiler,
    GrammarError,
    GrammarLimitError,
    GrammarMatcher,
    SampledToken,
    Sampler,
    SamplingState,
)
from engine_adapters.errors import EngineFailureError, InvalidRequestError
from tests.engine_adapters.embedded.grammar_harness import (
    BYTE_LEVEL_EOS,
    RandomModel,
    byte_level_tokenizer,
    write,
)

VOCAB = 258
GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_level_tokenizer()


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, VOCAB, BYTE_LEVEL_EOS)


def compile_schema(compiler: GrammarCompiler, schema: Any) -> GrammarMatcher:
    return compiler.compile(GrammarSpec("json_schema", json.dumps(schema)))


def allowed(matcher: GrammarMatcher) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(matcher.mask(), bitorder="little")).tolist())


def feed(matcher: GrammarMatcher, tokenizer: Tokenizer, text: str) -> None:
    for token_id in tokenizer.encode(text).ids:
        matcher.accept(token_id)


def state_of(matcher: GrammarMatcher | None, params: SamplingParams = GREEDY) -> SamplingState:
    return SamplingState(params, np.empty(0, np.int32), 0, matcher, BYTE_LEVEL_EOS)


def chain(length: int) -> dict[str, Any]:
    links = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"type": "null"}]} for i in range(length)}
    return {"$ref": "#/$defs/a0", "$defs": {**links, f"a{length}": {"type": "boolean"}}}


def nested(depth: int) -> str:
    return '{"items":' * depth + "{}" + "}" * depth


def test_the_first_token_of_an_object_is_its_brace(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    assert allowed(compiler.compile(GrammarSpec("json_object"))) == set(tokenizer.encode("{").ids)


def test_every_end_token_is_allowed_when_and_only_when_the_text_may_end(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = compile_schema(compiler, {"type": "integer"})
    assert not allowed(matcher) & set(BYTE_LEVEL_EOS)
    assert not matcher.accepting
    feed(matcher, tokenizer, "12")
    assert allowed(matcher) >= set(BYTE_LEVEL_EOS)
    assert matcher.accepting
    assert not matcher.finished
    matcher.accept(BYTE_LEVEL_EOS[1])
    assert matcher.finished


def test_an_object_is_finished_with_its_last_brace(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    state = state_of(compiler.compile(GrammarSpec("json_object")))
    for token_id in tokenizer.encode('{"a": {}').ids:
        state.accept(token_id)
    assert not state.grammar_finished
    state.accept(tokenizer.encode("}").ids[0])
    assert state.grammar_finished
    assert state.generated == 9


def test_without_a_grammar_nothing_is_finished() -> None:
    assert not state_of(None).grammar_finished


def test_a_forbidden_token_is_an_error_and_stays_one(compiler: GrammarCompiler) -> None:
    state = state_of(compiler.compile(GrammarSpec("json_object")))
    with pytest.raises(GrammarError, match="does not fit"):
        state.accept(3)
    assert state.generated == 0
    assert not state.grammar_finished
    assert state.grammar is not None
    with pytest.raises(GrammarError):
        state.grammar.mask()


def test_a_grammar_that_grows_past_a_limit_on_the_way_says_so(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    schema = {"type": "integer", "multipleOf": 10007, "minimum": -123456789, "maximum": 9876543210}
    matcher = compile_schema(compiler, schema)
    feed(matcher, tokenizer, "1")
    with pytest.raises(GrammarLimitError):
        matcher.mask()


def test_a_broken_grammar_fails_its_own_row_only(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    states = [state_of(compiler.compile(GrammarSpec("json_object"))) for _ in range(3)]
    broken = states[1].grammar
    assert broken is not None
    with pytest.raises(GrammarError):
        broken.accept(3)
    first, middle, last = Sampler().sample(torch.zeros(3, VOCAB), states)
    assert isinstance(middle, EngineFailureError)
    brace = SampledToken(tokenizer.encode("{").ids[0])
    assert [first, last] == [brace, brace]


def test_rows_without_a_grammar_are_free_beside_rows_with_one(compiler: GrammarCompiler) -> None:
    logits = torch.zeros(2, VOCAB)
    logits[:, 3] = 5.0
    free, bound = Sampler().sample(
        logits, [state_of(None), state_of(compiler.compile(GrammarSpec("json_object")))]
    )
    assert isinstance(free, SampledToken)
    assert isinstance(bound, SampledToken)
    assert free.token_id == 3
    assert bound.token_id != 3


def test_end_tokens_stay_banned_while_the_grammar_can_go_on(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    wants_to_end = torch.zeros(VOCAB)
    wants_to_end[list(BYTE_LEVEL_EOS)] = 50.0
    wants_to_end[tokenizer.encode("7").ids] = 10.0
    params = SamplingParams(temperature=0.0, min_tokens=4)
    matcher = compile_schema(compiler, {"type": "integer"})
    written = write(tokenizer, matcher, lambda _: wants_to_end, params=params, eos=BYTE_LEVEL_EOS)
    assert written.text == "7777"
    assert written.ended


def test_a_grammar_that_can_only_end_ends_even_under_ignore_eos(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = compile_schema(compiler, {"enum": [12345]})
    params = SamplingParams(temperature=0.0, ignore_eos=True, min_tokens=50)
    written = write(tokenizer, matcher, lambda _: torch.zeros(VOCAB), params=params, eos=BYTE_LEVEL_EOS)
    assert written.text == "12345"
    assert written.ended


@pytest.mark.parametrize("vocab", [VOCAB + 70, VOCAB, VOCAB - 1])
def test_logits_may_be_wider_or_narrower_than_the_tokenizer(tokenizer: Tokenizer, vocab: int) -> None:
    compiler = GrammarCompiler(tokenizer, vocab, BYTE_LEVEL_EOS)
    model = RandomModel(tokenizer, max(vocab, VOCAB))
    spec = GrammarSpec("json_schema", '{"type":"array","items":{"enum":["x"]},"maxItems":3}')
    params = SamplingParams(seed=1, logit_bias=dict.fromkeys(range(VOCAB, vocab), 60.0))
    written = write(
        tokenizer, compiler.compile(spec), lambda s: model(s)[:vocab], params=params, eos=BYTE_LEVEL_EOS
    )
    assert written.ended
    assert set(json.loads(written.text)) <= {"x"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "foo"}, "foo"),
        ({"not": {"type": "string"}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum"),
        ({"$ref": "http://example.com/other.json"}, "http://example.com/other.json"),
        ({"$ref": "#/$defs/missing"}, "missing"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, ""),
        ([1], "object"),
        (False, "object"),
        ({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}, "uniqueItems"),
        ({"properties": {f"p{i}": {} for i in range(1001)}}, "1001 optional properties"),
        (chain(3600), "references"),
        ({"enum": ["x" * 300_000]}, "characters"),
        ({"allOf": [{"type": "string", "pattern": f"a.{{{i}}}b"} for i in range(30)]}, "patterns"),
        ({"type": "integer", "multipleOf": 7919 * 7907}, "multipleOf"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_with_the_reason(
    compiler: GrammarCompiler, schema: Any, reason: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        compile_schema(compiler, schema)
    assert refused.value.param == "response_format.json_schema.schema"
    assert reason in refused.value.message
    assert "non-verbose" not in refused.value.message


@pytest.mark.parametrize(
    "text", ["", "{", '{"type":}', nested(101), nested(100_000), '{"minimum": ' + "9" * 5000 + "}"]
)
def test_what_is_not_a_usable_document_is_refused(compiler: GrammarCompiler, text: str) -> None:
    with pytest.raises(InvalidRequestError):
        compiler.compile(GrammarSpec("json_schema", text))


def test_a_missing_schema_is_refused(compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidRequestError):
        compiler.compile(GrammarSpec("json_schema"))


def test_long_chains_of_references_and_many_properties_still_compile(compiler: GrammarCompiler) -> None:
    assert allowed(compile_schema(compiler, chain(2500)))  # far more than an ordinary thread's stack holds
    assert allowed(compile_schema(compiler, {"properties": {f"p{i}": {} for i in range(1000)}}))
    assert allowed(compiler.compile(GrammarSpec("json_schema", nested(90))))


def test_every_one_of_many_optional_properties_may_come_first(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    names = [f"p{i}" for i in range(1000)]
    schema = {
        "type": "object",
        "properties": {n: {"type": "null"} for n in names},
        "additionalProperties": False,
    }
    matcher = compile_schema(compiler, schema)
    feed(matcher, tokenizer, '{"p3": null, "p998": null, "p999": null}')
    assert matcher.finished


@pytest.mark.parametrize(
    "lark",
    [
        "start: (",
        'start: "<" %json {"type": "foo"}',
        'start: "<" %json {"type": ',
        f"start: %json {json.dumps(chain(3600))}",
        'start: "<" %json {"type": "integer", "multipleOf": 62615533}',
    ],
)
def test_a_broken_lark_grammar_or_a_bad_schema_in_it_is_refused(compiler: GrammarCompiler, lark: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        compiler.compile_lark(lark)
    assert refused.value.param == "tools"


def test_matchers_of_one_schema_move_independently(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    first, second = (compile_schema(compiler, {"type": "array", "items": {"type": "null"}}) for _ in range(2))
    feed(first, tokenizer, "[null")
    assert allowed(second) == set(tokenizer.encode("[").ids)
    feed(second, tokenizer, "[]")
    assert second.finished
    assert not first.finished


def test_threads_may_compile_and_walk_at_once(tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(tokenizer, VOCAB, BYTE_LEVEL_EOS)

    model = RandomModel(tokenizer, VOCAB)

    def work(job: int) -> int:
        value = [job % 3, str(job % 5)]
        matcher = compile_schema(compiler, {"enum": [value]})
        written = write(
            tokenizer,
            matcher,
            model,
            params=SamplingParams(seed=job),
            eos=BYTE_LEVEL_EOS,
        )
        assert json.loads(written.text) == value
        return job

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(40))) == list(range(40))


def test_the_cache_stays_bounded_and_what_left_it_compiles_again(tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(tokenizer, VOCAB, BYTE_LEVEL_EOS)
    for i in range(200):
        compile_schema(compiler, {"enum": [i]})
    assert compiler.cached <= 128
    for i in range(25):
        compile_schema(compiler, {"enum": [i], "description": "x" * 200_000})
    assert compiler.cached <= 4 * 1024 * 1024 / 200_000
    matcher = compile_schema(compiler, {"enum": [0]})
    feed(matcher, tokenizer, "0")
    assert matcher.accepting


def test_a_tokenizer_with_padding_and_truncation_is_taken_without_them(tokenizer: Tokenizer) -> None:
    padded = Tokenizer.from_str(tokenizer.to_str())
    padded.enable_truncation(1)
    padded.enable_padding(length=8)
    matcher = GrammarCompiler(padded, VOCAB, BYTE_LEVEL_EOS).compile(GrammarSpec("json_object"))
    assert allowed(matcher) == set(tokenizer.encode("{").ids)
    assert padded.truncation is not None
