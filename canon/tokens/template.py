"""One chat template, compiled once: what it says about itself, and how it is rendered."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import meta, nodes

from canon.errors import ModelFolderError, TemplateError
from canon.tokens.limits import ChatLimits
from canon.tokens.sandbox import ChatTemplateEnvironment, RenderClock, RenderingOn

# What code in a template can raise. Anything else is a fault of ours and goes up as it is.
_TEMPLATE_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)


class MissingValueError(TemplateError):
    """The template used something that the conversation does not have."""


def local_now() -> datetime:
    """The time of day where the server stands, which is what Transformers gives templates."""
    return datetime.now()


class ChatTemplate:
    """A compiled chat template. Thread-safe; holds no conversation.

    `variables` are the special tokens by name (`bos_token`, ...), which templates write. Raises `ModelFolderError`
    where `source` does not compile.
    """

    def __init__(
        self,
        source: str,
        variables: Mapping[str, str],
        limits: ChatLimits,
        *,
        now: Callable[[], datetime] = local_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self._variables = dict(variables)
        self._limits = limits
        self._now = now
        self._monotonic = monotonic
        self._tells_time = "strftime_now" in source
        environment = ChatTemplateEnvironment(limits.characters)
        try:
            tree = environment.parse(source)
            self.constants = frozenset(_constants(tree))  # strings in expressions
            self.literals = self.constants | frozenset(n.data for n in tree.find_all(nodes.TemplateData))
            self.names = frozenset(meta.find_undeclared_variables(tree))  # variables it takes from outside
            self._template = environment.from_string(tree)
            self._template.globals = dict(self._template.globals)  # a plain one is copied sooner
        except _TEMPLATE_FAILURES as error:
            raise ModelFolderError(f"the chat template does not compile: {error}") from error

    def mentions(self, word: str) -> bool:
        """Does `word` occur anywhere in the template?"""
        return word in self.source

    def clock(self, *, keep_lexemes: bool = False) -> RenderClock:
        """A new clock; renderings that must agree with each other share one."""
        return RenderClock(
            monotonic=self._monotonic,
            deadline=self._monotonic() + self._limits.seconds,
            now=self._now()
            if self._tells_time
            else datetime.min,  # to ask takes as long as a short rendering
            keep_lexemes=keep_lexemes,
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        add_generation_prompt: bool,
        extra: Mapping[str, Any],
        clock: RenderClock,
    ) -> str:
        """The rendered text. Raises `TemplateError` where the template refuses, fails or passes its bounds."""
        variables: dict[str, Any] = {"documents": None, **self._variables, **extra}
        variables |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            with RenderingOn(clock):
                return self._collect(variables, clock)
        except jinja2.UndefinedError as error:
            raise MissingValueError(f"the chat template failed: {error}", "messages") from error
        except jinja2.exceptions.SecurityError as error:
            raise TemplateError(f"the chat template was stopped: {error}") from error
        except jinja2.TemplateError as error:
            raise TemplateError(
                f"the chat template refuses this conversation: {error}", "messages"
            ) from error
        except (TimeoutError, OverflowError) as error:
            raise TemplateError(str(error), "messages") from error
        except _TEMPLATE_FAILURES as error:
            what = f"{type(error).__name__}: {error}"
            raise TemplateError(
                f"the chat template failed on this conversation: {what}", "messages"
            ) from error

    def _collect(self, variables: Mapping[str, Any], clock: RenderClock) -> str:
        pieces: list[str] = []
        length = 0
        for piece in self._template.generate(variables):
            clock.check()
            length += len(piece)
            if length > self._limits.characters:
                raise OverflowError(f"the rendered chat is longer than {self._limits.characters} characters")
            pieces.append(piece)
        return "".join(pieces)


def _constants(tree: nodes.Template) -> list[str]:
    return [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
