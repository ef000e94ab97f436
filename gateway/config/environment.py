"""Keys of the file from the environment: `KVGATE__LEDGER__URL=off`, `KVGATE__ENGINES__0__URL=http://sglang:30000`.

One rule: `KVGATE__`, then the key's path in upper case with `__` between its steps; a number is a place in a list, from
0 on, and the first that is not taken adds to the list. The value is YAML, so `8`, `true`, `off` and `[a, b]` are what
they would be in the file. It counts instead of what the file says. An empty variable is none.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gateway.config.errors import ConfigError

PREFIX = "KVGATE__"

Steps: TypeAlias = tuple[str | int, ...]

_STEP = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Given:
    """What file and environment say together, not checked yet."""

    values: Any
    variables: Mapping[str, str] = field(default_factory=dict)  # by the path of the key that each says

    def variable(self, path: str) -> str | None:
        """The variable that says the key at `path`, or what this key is in; None: the file says it."""
        for said, name in self.variables.items():
            if path == said or path.startswith((f"{said}.", f"{said}[")):
                return name
        return None


def overlaid(values: Any, environ: Mapping[str, str], parse: Callable[[str], Any]) -> Given:
    """`values` of a file, and over them what the environment says.

    Args:
        parse: reads one value; raises ConfigError.

    Raises:
        ConfigError: a variable names no place where a key could be.
    """
    given, variables = {} if values is None else values, dict[str, str]()
    # What holds others comes before what is in it, and places in a list one after the other.
    for steps, name in sorted(_named(environ), key=lambda each: [(type(s) is str, s) for s in each[0]]):
        path = path_of(steps)
        if path in variables:
            raise ConfigError(f"{path}: {variables[path]} and {name} both say it")
        try:
            value = parse(environ[name])
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}, from {name}") from None
        given = _put(given, steps, value, f"{path}, from {name}")
        variables[path] = name
    return Given(given, variables)


def first_variable(environ: Mapping[str, str]) -> str | None:
    """A variable that says a key; None: there is none."""
    return min((name for name in environ if name.startswith(PREFIX) and environ[name].strip()), default=None)


def names_engines(environ: Mapping[str, str]) -> bool:
    """Whether the environment says what is served, so that no file is needed."""
    return any(name.upper().startswith(f"{PREFIX}ENGINES") for name in environ if environ[name].strip())


def path_of(steps: Steps) -> str:
    """`engines[0].url`"""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".")


def _named(environ: Mapping[str, str]) -> list[tuple[Steps, str]]:
    found = []
    for name, text in environ.items():
        if not name.startswith(PREFIX) or not text.strip():
            continue
        parts = name.removeprefix(PREFIX).split("__")
        if not all(_STEP.fullmatch(part) for part in parts) or parts[0].isdigit():
            raise ConfigError(f"{name}: write {PREFIX}KEY, {PREFIX}KEY__KEY or {PREFIX}KEY__0__KEY")
        found.append((tuple(int(part) if part.isdigit() else part.lower() for part in parts), name))
    return found


def _put(values: Any, steps: Steps, value: Any, who: str) -> Any:
    """A copy of `values` with `value` at `steps`."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        if values is not None and not isinstance(values, dict):
            raise ConfigError(f"{who}: there is no key {step!r} in what stands there")
        return {**(values or {}), step: _put((values or {}).get(step), rest, value, who)}
    listed = [] if values is None else values
    if not isinstance(listed, list):
        raise ConfigError(f"{who}: there is no list that could have a place {step}")
    if step > len(listed):
        raise ConfigError(f"{who}: the list has {len(listed)} entries; the next place is {len(listed)}")
    before = listed[step] if step < len(listed) else None
    return [*listed[:step], _put(before, rest, value, who), *listed[step + 1 :]]
