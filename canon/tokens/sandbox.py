"""The Jinja environment chat templates run in: what Transformers gives them, and bounds on time and size."""

import json
from collections.abc import Callable
from contextvars import ContextVar, Token
from datetime import datetime
from functools import partial, reduce
from typing import Any

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from canon.tokens import growth
from canon.tokens.lexemes import dumps_keeping_lexemes
from canon.tokens.template_compiler import TemplateCompiler

_OF_DICTS = frozenset(dir(dict))
_OF_LOOPS = frozenset(
    ("depth", "depth0", "first", "index", "index0", "last", "length", "revindex", "revindex0")
)
_CHECKED_FILTERS = ("center", "format", "indent", "join", "replace", "wordwrap")


class RenderClock(msgspec.Struct, frozen=True):
    """One rendering's time: `tick` says how long it may go on, `now` what time it is to the template."""

    monotonic: Callable[[], float]
    deadline: float  # by `monotonic`
    now: datetime
    keep_lexemes: bool = False  # some number in the data must be written as it came

    def check(self) -> None:
        if self.monotonic() > self.deadline:
            raise TimeoutError("the chat template takes too long")


_clock: ContextVar[RenderClock] = ContextVar("chat template clock")


class RenderingOn:
    """Renderings inside this block run on `clock`."""

    __slots__ = ("_before", "_on")

    def __init__(self, clock: RenderClock) -> None:
        self._on = clock

    def __enter__(self) -> None:
        self._before: Token[RenderClock] = _clock.set(self._on)

    def __exit__(self, *_: object) -> None:
        _clock.reset(self._before)


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what an assistant wrote; the text inside is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.CallBlock:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body, lineno=line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class _TemplateDict:
    """`dict` as templates see it: it makes dictionaries and gives away nothing of the type itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class _TemplateNamespace(Namespace):
    """`namespace` without names that reach into the interpreter."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a chat template may not store {name!r} on a namespace")


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML; models are trained on plain JSON.
    write = dumps_keeping_lexemes if _clock.get().keep_lexemes else json.dumps
    return write(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(pattern: str) -> str:
    return _clock.get().now.strftime(pattern)


def _tick() -> None:
    """What every turn of a loop and every macro calls."""
    _clock.get().check()


class ChatTemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates so that loops, calls and everything that builds text stay within bounds."""

    code_generator_class = TemplateCompiler
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, max_characters: int) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self._max_characters = max_characters
        self.tick = _tick
        self.globals.pop("lipsum")
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": _TemplateDict(),
            "namespace": _TemplateNamespace,
        }
        self.filters["tojson"] = _tojson
        for name in _CHECKED_FILTERS:
            self.filters[name] = growth.checked_filter(name, self.filters[name], max_characters)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _bounded(super()._parse(source, name, filename))

    def added(self, context: Context, *terms: Any) -> Any:
        """The template's `+` operator, one behind the other."""
        for term in terms:
            if type(term) is not str:
                return reduce(partial(self.call_binop, context, "+"), terms)
        growth.check_size(sum(map(len, terms)), self._max_characters)
        return "".join(terms)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        growth.check_operator(operator, left, right, self._max_characters)
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        # What nearly all templates ask for has nothing in it that would have to be kept from them.
        if type(obj) is dict and attribute not in _OF_DICTS and attribute in obj:
            return obj[attribute]
        if type(obj) is LoopContext and attribute in _OF_LOOPS:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  as in jinja2
        _clock.get().check()
        growth.check_method(__obj, args, kwargs, __self._max_characters)
        return super().call(__context, __obj, *args, **kwargs)

    def joined(self, *parts: Any) -> str:
        """The template's `~` operator."""
        texts = [str(part) for part in parts]
        growth.check_concat(texts, self._max_characters)
        return "".join(texts)


def _bounded(template: nodes.Template) -> nodes.Template:
    """Rewrites the tree: each loop turn and macro ticks, and `~` goes through `joined`."""
    _replace_concats(template)
    blocks: list[Any] = list(template.find_all((nodes.For, nodes.Macro, nodes.CallBlock)))
    for block in blocks:
        tick = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
        block.body.insert(0, nodes.ExprStmt(tick, lineno=block.lineno))
    return template


def _replace_concats(node: nodes.Node) -> None:
    for field, value in node.iter_fields():
        if isinstance(value, list):
            value[:] = [_without_concat(item) for item in value]
        else:
            setattr(node, field, _without_concat(value))


def _without_concat(value: Any) -> Any:
    if not isinstance(value, nodes.Node):
        return value
    _replace_concats(value)
    if isinstance(value, nodes.Concat):
        joined = nodes.EnvironmentAttribute("joined")
        return nodes.Call(joined, value.nodes, [], None, None, lineno=value.lineno)
    return value
