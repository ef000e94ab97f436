"""What every tool parser does, and the registry that finds the one for a model."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from tokenizers import Tokenizer

from engine_adapters.base import ToolOptions


@dataclass(frozen=True, slots=True)
class ContentPiece:
    """Text that belongs to no call; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins; `call` counts from 0."""

    call: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments, exactly as the model wrote them; never empty."""

    call: int
    text: str


ToolPiece = ContentPiece | CallStart | CallArguments


class ToolParser(ABC):
    """Splits one choice's text into content and tool calls, while it is written.

    How the text is cut into pieces changes only how the pieces that come out are cut. Text that turns out to
    be no call is given back as content, never lost and never an error. Function names are passed on as the
    model wrote them, offered or not: the client decides what a call to an unknown function means.

    Args:
        parallel: False keeps the first call and drops whatever follows it.
        new_id: gives each call its id; default: the family's own.
    """

    name: ClassVar[str]
    special_tokens: ClassVar[tuple[str, ...]] = ()  # tags it must see, even where control tokens are hidden

    def __init__(self, *, parallel: bool = True, new_id: Callable[[], str] | None = None) -> None:
        self._parallel = parallel
        self._new_id = new_id or self.new_id

    @staticmethod
    def new_id() -> str:
        """A fresh tool-call id: `call_` and 24 hexadecimal digits."""
        return f"call_{secrets.token_hex(12)}"

    @property
    @abstractmethod
    def done(self) -> bool:
        """True when nothing that follows can matter, so that generation may end here."""

    @abstractmethod
    def push(self, text: str) -> list[ToolPiece]:
        """Take the next piece of text; returns what is certain by now."""

    @abstractmethod
    def finish(self) -> list[ToolPiece]:
        """The text ends here, whole or cut off; returns what was held back."""

    @classmethod
    @abstractmethod
    def writes(cls, template: str) -> bool:
        """Whether a model with this chat template writes its calls in this parser's form."""

    @classmethod
    @abstractmethod
    def grammar(cls, tools: ToolOptions, tokenizer: Tokenizer) -> str | None:
        """A Lark grammar (llguidance's dialect): whatever it allows, this parser reads as calls `tools` asks for.

        None where the choice forces nothing ("auto", "none").

        Raises:
            InvalidRequestError: a tool that may be called has a schema that cannot be followed, or there is
            none.
        """


_PARSERS: dict[str, type[ToolParser]] = {}
_Parser = TypeVar("_Parser", bound=type[ToolParser])


def register(parser: _Parser) -> _Parser:
    """Make a parser known under its name; earlier ones are asked first by `detect`."""
    _PARSERS[parser.name] = parser
    return parser


def tool_parser_names() -> tuple[str, ...]:
    """All names that `tool_parser` takes."""
    return tuple(_PARSERS)


def tool_parser(name: str) -> type[ToolParser]:
    """The parser of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in _PARSERS:
        raise ValueError(f"no tool parser is called {name!r}; there are {', '.join(_PARSERS)}")
    return _PARSERS[name]


def detect(template: str | None) -> type[ToolParser] | None:
    """The parser for models with this chat template; None where it shows no form that we read."""
    return next((parser for parser in _PARSERS.values() if template and parser.writes(template)), None)
