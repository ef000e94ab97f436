"""Size checks on what a template builds, made before it is built.

Jinja's sandbox stops a template from reaching outside; it does not stop one from asking for a string of a terabyte.
Every function here takes a limit in characters (or items) and raises `OverflowError` past it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_SIZED = (str, bytes, list, tuple)
_WIDE_FORMAT = re.compile(
    r"\d{6}|%[^%\w]*\*"
)  # a width of six digits or more, or one that comes as an argument


def check_size(size: int, limit: int) -> None:
    """Refuses a `size` past the limit."""
    if size > limit:
        raise OverflowError(f"the chat template builds more than {limit} characters")


def check_operator(operator: str, left: Any, right: Any, limit: int) -> None:
    """Refuses `left operator right` where the result would be too large."""
    if operator == "+" and isinstance(left, _SIZED) and isinstance(right, _SIZED):
        check_size(len(left) + len(right), limit)
    elif operator == "*":
        for sized, times in ((left, right), (right, left)):
            if isinstance(sized, _SIZED) and isinstance(times, int):
                check_size(len(sized) * max(times, 0), limit)
        _check_numbers(left, right)
    elif operator == "**":
        _check_numbers(left, right)
        if isinstance(right, int) and abs(right) > 1024:
            raise OverflowError("the chat template raises a number to a power past 1024")
    elif operator == "%" and isinstance(left, str):
        _check_format(left)


def _check_numbers(*operands: Any) -> None:
    for operand in operands:
        if isinstance(operand, int) and operand.bit_length() > 4096:
            raise OverflowError("the chat template computes a number of more than 4096 bits")


def _check_format(text: str) -> None:
    if _WIDE_FORMAT.search(text):
        raise OverflowError("the chat template formats text to a width of 100000 or more")


def check_concat(parts: Iterable[Any], limit: int) -> None:
    """Refuses joining `parts` where the result would be too large."""
    check_size(sum(len(part) for part in parts if isinstance(part, str)), limit)


def check_method(method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int) -> None:
    """Refuses calling a string's `method` where the result would be too large."""
    receiver = getattr(getattr(method, "__wrapped__", method), "__self__", None)
    if isinstance(receiver, str):
        check_text_function(method.__name__, receiver, args, kwargs, limit)


def check_text_function(
    name: str, text: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int
) -> None:
    """Refuses `text.name(*args)` (or the filter of that name) where the result would be too large."""
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, int):
            check_size(abs(argument), limit)
    if name in ("format", "format_map"):
        _check_format(text)
    elif name == "join" and args:
        _check_join(text, args[0], limit)
    elif name == "replace" and len(args) >= 2:
        _check_replace(text, str(args[0]), str(args[1]), limit)
    elif name in ("expandtabs", "indent", "wordwrap"):
        width = next((a for a in (*args, *kwargs.values()) if isinstance(a, int)), 8)
        check_size((text.count("\t") + text.count("\n")) * abs(width), limit)


def _check_join(separator: str, items: Any, limit: int) -> None:
    if isinstance(items, (str, list, tuple)):
        check_size(len(items) * len(separator) + sum(len(i) for i in items if isinstance(i, str)), limit)


def _check_replace(text: str, old: str, new: str, limit: int) -> None:
    check_size(len(text) + text.count(old) * len(new), limit)


def checked_filter(name: str, function: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """A text filter that refuses to build what is too large. `function` keeps its Jinja pass-markers."""
    marker = getattr(function, "jinja_pass_arg", None)
    at = 0 if marker is None else 1  # where the value stands, after the context or environment

    def checked(*args: Any, **kwargs: Any) -> Any:
        value, rest = args[at], args[at + 1 :]
        if name == "join":
            _check_join(str(rest[0]) if rest else str(kwargs.get("d", "")), value, limit)
        elif isinstance(value, str):
            check_text_function(name, value, rest, kwargs, limit)
        return function(*args, **kwargs)

    if marker is not None:
        checked.jinja_pass_arg = marker  # type: ignore[attr-defined]
    return checked
