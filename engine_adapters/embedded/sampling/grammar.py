"""Grammars for constrained generation: schemas compiled once, one cheap matcher a sequence."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray
from tokenizers import Tokenizer

from engine_adapters.base import GrammarSpec
from engine_adapters.embedded.sampling.errors import GrammarError, GrammarLimitError
from engine_adapters.embedded.sampling.schema_guard import check_embedded_schemas, check_schema, on_deep_stack
from engine_adapters.errors import InvalidRequestError

SCHEMA_PARAM = "response_format.json_schema.schema"

# Between two JSON tokens: nothing, one blank, or one line break and its indentation. Never an endless run.
WHITESPACE = r"\x20|\n\x20{0,16}|\n\t{0,8}"

_ANY_OBJECT = '{"type":"object"}'
_CACHED = 128  # compiled grammars kept,
_CACHED_TEXT = 4 * 1024 * 1024  # and the characters they were compiled from: memory goes with them
_MAX_ITEMS = 10_000  # parser items at one position; MAX_OPTIONAL properties make about 4 each


class GrammarMatcher:
    """Where one sequence stands in its grammar. Owned by the engine thread."""

    __slots__ = ("_machine", "_words")

    def __init__(self, machine: LLMatcher, words: int) -> None:
        self._machine = machine
        self._words = words  # 32-bit words of one mask

    @property
    def finished(self) -> bool:
        """True once nothing more may come, or the end token has come."""
        return bool(self._machine.is_stopped()) and not self._machine.is_error()

    @property
    def accepting(self) -> bool:
        """Whether the text so far is complete, so that the end token is allowed."""
        return bool(self._machine.is_accepting())

    def mask(self) -> NDArray[np.uint8]:
        """Which tokens may come next: bit i (little end first) of shape [bytes] belongs to token i.

        Raises:
            GrammarLimitError: the grammar's machine gave up at one of its limits.
            GrammarError: it takes no question at all.
        """
        words = np.zeros(self._words, np.uint32)
        try:
            self._machine.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        except (ValueError, RuntimeError) as error:
            raise GrammarError(f"the grammar gave no mask: {error}") from error
        self._check()
        return words.view(np.uint8)

    def accept(self, token_id: int) -> None:
        """Move on by one token.

        Raises:
            GrammarError: the grammar does not allow it here.
        """
        if not self._machine.consume_token(token_id):
            raise GrammarError(f"token {token_id} does not fit the grammar: {_reason(self._machine)}")

    def _check(self) -> None:
        if self._machine.is_error():
            raise GrammarLimitError(f"the grammar cannot be followed further: {_reason(self._machine)}")


class GrammarCompiler:
    """Turns schemas and Lark grammars into matchers for one tokenizer. Thread-safe; the GIL is free."""

    def __init__(
        self, tokenizer: Tokenizer | Path | str, vocab_size: int, eos_token_ids: Iterable[int]
    ) -> None:
        """Cheap: the tokenizer is read when the first grammar is compiled.

        `tokenizer`: the object or the path of its tokenizer.json. `vocab_size`: the logits' width, which may
        differ from the tokenizer's. `eos_token_ids`: what ends a text, all of them.
        """
        self._source = tokenizer
        self._vocab_size = vocab_size
        self._eos = list(eos_token_ids)
        self._limits = LLParserLimits(verbose_errors=False, max_items_in_row=_MAX_ITEMS)
        self._cache: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()  # for the cache
        self._tokenizer: LLTokenizer | None = None
        self._tokenizer_lock = threading.Lock()

    @property
    def cached(self) -> int:
        """How many compiled grammars are kept."""
        return len(self._cache)

    def compile(self, spec: GrammarSpec, param: str = SCHEMA_PARAM) -> GrammarMatcher:
        """A new matcher for `spec`, at its start. Properties come in the schema's order.

        Raises:
            InvalidRequestError: the schema is not one, or uses what cannot be enforced; names `param`.
        """
        schema = _ANY_OBJECT if spec.kind == "json_object" else spec.schema
        if schema is None:
            raise InvalidRequestError("the schema is missing", param=param)
        return self._matcher("schema:" + schema, lambda: self._from_schema(schema, param))

    def compile_lark(self, text: str, param: str = "tools") -> GrammarMatcher:
        """A new matcher for a grammar in llguidance's Lark dialect, at its start.

        Raises:
            InvalidRequestError: the grammar, or a schema in it, cannot be compiled; names `param`.
        """
        return self._matcher("lark:" + text, lambda: self._from_lark(text, param))

    def _matcher(self, key: str, build: Callable[[], LLMatcher]) -> GrammarMatcher:
        with self._lock:
            machine = self._cache.get(key)
            if machine is not None:
                self._cache.move_to_end(key)
        if machine is None:
            machine = build()
            self._keep(key, machine)
        tokens = self._load_tokenizer().vocab_size
        return GrammarMatcher(machine.deep_copy(), (tokens + 31) // 32)

    def _keep(self, key: str, machine: LLMatcher) -> None:
        with self._lock:
            self._cache[key] = machine
            while len(self._cache) > _CACHED or sum(map(len, self._cache)) > _CACHED_TEXT:
                self._cache.popitem(last=False)

    def _from_schema(self, schema: str, param: str) -> LLMatcher:
        check_schema(schema, param)
        machine = self._build(lambda: _schema_grammar(schema, lenient=False), param)
        if machine.is_error():
            return self._without_formats(schema, param, _reason(machine))
        return machine

    def _without_formats(self, schema: str, param: str, reason: str) -> LLMatcher:
        """An unknown format is an annotation (JSON Schema 2020-12, 7.2.1); nothing else may be ignored."""
        machine = self._build(lambda: _schema_grammar(schema, lenient=True), param)
        ignored = machine.get_grammar_warnings()
        if machine.is_error() or not all(warning.startswith("Unknown format") for warning in ignored):
            raise InvalidRequestError(f"the schema cannot be enforced: {reason}", param=param)
        return machine

    def _from_lark(self, text: str, param: str) -> LLMatcher:
        check_embedded_schemas(text, param)
        machine = self._build(lambda: LLMatcher.grammar_from_lark(text), param)
        if machine.is_error():
            raise InvalidRequestError(f"the grammar cannot be compiled: {_reason(machine)}", param=param)
        return machine

    def _build(self, grammar: Callable[[], str], param: str) -> LLMatcher:
        tokenizer = self._load_tokenizer()

        def build() -> LLMatcher:
            machine = LLMatcher(tokenizer, grammar(), log_level=0, limits=self._limits)
            if not machine.is_error():
                machine.compute_bitmask()  # the first mask is the dearest; every copy inherits what it built
            return machine

        try:
            return on_deep_stack(build)
        except ValueError as error:
            raise InvalidRequestError(f"the schema cannot be compiled: {error}", param=param) from error

    def _load_tokenizer(self) -> LLTokenizer:
        with self._tokenizer_lock:
            if self._tokenizer is None:
                self._tokenizer = self._read_tokenizer()
            return self._tokenizer

    def _read_tokenizer(self) -> LLTokenizer:
        tokenizer = _plain(self._source)
        ids = tokenizer.get_vocab(with_added_tokens=True).values()
        width = max(
            self._vocab_size, max(ids) + 1
        )  # the model may also have fewer logits than there are tokens
        try:
            return LLTokenizer(tokenizer.to_str(), n_vocab=width, eos_token=self._eos)
        except ValueError as error:
            message = f"this model's tokenizer cannot be constrained by a grammar: {error}"
            raise InvalidRequestError(message, param="response_format") from error


def _plain(source: Tokenizer | Path | str) -> Tokenizer:
    """A copy without padding and truncation, which are no business of a grammar."""
    text = Path(source).read_text("utf-8") if isinstance(source, Path | str) else source.to_str()
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _reason(machine: LLMatcher) -> str:
    return str(machine.get_error()).removesuffix("<non-verbose/>").strip()


def json_lark(spec: GrammarSpec) -> str:
    """Lark whose only rule, `start`, is the JSON of a `spec` that `GrammarCompiler.compile` has taken."""
    schema = json.loads(_ANY_OBJECT if spec.schema is None else spec.schema)
    options = {"x-guidance": _options(lenient=True)}  # in place of the client's, if there is one
    keywords = schema if isinstance(schema, dict) else {}  # `true` allows anything
    return "start: %json " + json.dumps({**keywords, **options}, ensure_ascii=False)


def _schema_grammar(schema: str, *, lenient: bool) -> str:
    # Overrides win over an "x-guidance" key, by which a client could loosen them.
    return str(LLMatcher.grammar_from_json_schema(schema, overrides=_options(lenient=lenient)))


def _options(*, lenient: bool) -> dict[str, str | bool]:
    return {"whitespace_pattern": WHITESPACE, "whitespace_flexible": True, "lenient": lenient}
