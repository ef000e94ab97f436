"""Tells what the template wrote from what came in with the content.

For one rendering, each character of the content that special tokens are made of is replaced by a private-use
character of its own. In the rendered text, a special token spelled in plain characters is then the template's own;
one with a stand-in in it was typed by somebody, whole or in parts that the template happened to join. Putting the
characters back gives the text itself. Lengths stay as they are, so templates that cut or trim do the same as before.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from canon.errors import TemplateError
from canon.tokens.template import ChatTemplate
from canon.tokens.text_scanner import TextScanner

_PRIVATE_USE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]")
_PRIVATE_RANGES = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


@dataclass(frozen=True, slots=True)
class StandIns:
    """One request's choice of stand-ins."""

    mark: Callable[[str], str]  # content -> the same with stand-ins
    originals: Mapping[str, str]  # stand-in -> character

    def restore(self, text: str) -> str:
        for stand_in, original in self.originals.items():
            text = text.replace(stand_in, original)
        return text


class ControlTokens:
    """The special tokens of one model, seen from one of its chat templates."""

    def __init__(self, special: Iterable[str], template: ChatTemplate, variables: Mapping[str, str]) -> None:
        self.scanner = TextScanner(special)
        words = self.scanner.words
        self._alphabet = "".join(sorted(set("".join(words))))
        self._signs = "".join(c for c in self._alphabet if not (c.isalnum() or c == "_" or c.isspace()))
        self._bare = any(not set(word) & set(self._signs) for word in words)
        self._all_words = "\0".join(words)
        own_text = "\0".join((template.source, *variables.values()))
        self._reserved = {*self._alphabet, *_PRIVATE_USE.findall(own_text)}
        self._has_sign = _any_of(self._signs)
        self._beginnings = tuple(self._with_signs(word[:n] for word in words for n in range(1, len(word))))
        self._endings = tuple(self._with_signs(word[n:] for word in words for n in range(1, len(word))))
        # A template that ends a string inside a token, as `'<|' + role + '|>'` does, builds tokens from pieces.
        self._assembles = any(literal.endswith(self._beginnings) for literal in template.literals)
        self._written = _written(words, template, variables)
        self._kept = TextScanner(c for c in template.constants if self._is_kept(c))

    def _with_signs(self, parts: Iterable[str]) -> set[str]:
        return {part for part in parts if self._has_sign(part)}

    def _is_kept(self, constant: str) -> bool:
        """A string that the template may look for in content, and that can be no part of a special token."""
        return (
            self._has_sign(constant)
            and constant not in self._all_words
            and not self.scanner.found_in(constant)
            and not constant.endswith(self._beginnings)
            and not constant.startswith(self._endings)
        )

    def may_be_written_in(self, content: Iterable[str]) -> bool:
        """False where the content cannot have any part in a special token of the rendered text."""
        return self._assembles or self._bare or any(map(self._has_sign, content))

    def of_template(self, text: str) -> list[tuple[int, int]]:
        """Where special tokens stand in `text` that this template can have written, as (start, end)."""
        spans = self.scanner.spans(text)
        return spans if self._assembles else [(a, b) for a, b in spans if text[a:b] in self._written]

    def stand_ins(self, content: Sequence[str]) -> StandIns:
        """Stand-ins that occur nowhere in `content`. Raises `TemplateError` where it leaves none free."""
        used = set(chain.from_iterable(_PRIVATE_USE.findall(text) for text in content if not text.isascii()))
        used |= self._reserved
        free = (chr(code) for code in chain(*_PRIVATE_RANGES) if chr(code) not in used)
        table = dict(zip(self._alphabet, free, strict=False))
        if len(table) < len(self._alphabet):
            raise TemplateError("the text uses every private-use character that Unicode has", "messages")
        return StandIns(self._marker(table), {stand_in: c for c, stand_in in table.items()})

    def _marker(self, table: Mapping[str, str]) -> Callable[[str], str]:
        all_characters = str.maketrans(dict(table))
        signs = [(sign, table[sign]) for sign in self._signs]

        def mark(text: str) -> str:
            if self._assembles and text.strip() and text.strip() in self._all_words:
                return text.translate(all_characters)
            if not self._bare and not self._has_sign(text):
                return text
            return "".join(
                part.translate(all_characters) if is_token else self._mark_signs(part, signs)
                for is_token, part in _parted(self.scanner, text)
            )

        return mark

    def _mark_signs(self, text: str, signs: Sequence[tuple[str, str]]) -> str:
        parts: list[str] = []
        for is_kept, part in _parted(self._kept, text):
            if not is_kept:
                for sign, stand_in in signs:
                    part = part.replace(sign, stand_in)
            parts.append(part)
        return "".join(parts)


def _parted(scanner: TextScanner, text: str) -> Iterable[tuple[bool, str]]:
    """`text` in order as (is it one of the scanner's words?, part)."""
    done = 0
    for start, end in scanner.spans(text):
        yield False, text[done:start]
        yield True, text[start:end]
        done = end
    yield False, text[done:]


def _any_of(characters: str) -> Callable[[str], bool]:
    # One look for each is many times faster than one for a class of them.
    def has_any(text: str) -> bool:
        for character in characters:  # noqa: SIM110  as a generator it takes three times as long
            if character in text:
                return True
        return False

    return has_any


def _written(words: Iterable[str], template: ChatTemplate, variables: Mapping[str, str]) -> frozenset[str]:
    """The special tokens that the template has in itself or in its variables."""
    sources = "\0".join((*template.literals, *variables.values()))
    return frozenset(word for word in words if word in sources)
