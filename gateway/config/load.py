"""From a file to a checked configuration."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from gateway.config.environment import Given, overlaid
from gateway.config.errors import ConfigError
from gateway.config.model import Config

_BOOL = "tag:yaml.org,2002:bool"
_LARGEST = 1 << 20  # bytes


class _Loader(yaml.SafeLoader):
    """Plain values only. A key that stands twice is refused, and nothing is written by reference.

    `on`, `off`, `yes` and `no` are words, as in YAML 1.2: `off` is a policy, and where no ledger is kept.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="references (*name) are not taken", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"{key!r} stands twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load_config(file: Path | None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration in a YAML file and, over it, in `environ`; None: in `environ` alone.

    Raises:
        ConfigError: it cannot be read; each message begins with the key's path, or the place in the file.
    """
    values = None if file is None else _parsed(_text(file), str(file))
    if file is not None and not isinstance(values, dict):
        raise ConfigError("the file holds no keys; it begins with engines:")
    return check_config(overlaid(values, environ or {}, _value))


def check_config(values: Any) -> Config:
    """The configuration that `values` of a file, or a `Given`, say; raises ConfigError."""
    given = values if isinstance(values, Given) else Given(values)
    try:
        return Config.model_validate(given.values)
    except ValidationError as error:
        raise ConfigError(*(_message(each, given) for each in error.errors(include_url=False))) from None


def _text(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    if len(text) > _LARGEST:
        raise ConfigError(f"{file} is larger than {_LARGEST} bytes")
    return text


def _parsed(text: str | bytes, source: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506  a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise ConfigError(f"{place}{error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{source} is no YAML: {error}") from None


def _value(text: str) -> Any:
    """One value from the environment; it is not repeated, since it may be a secret that strayed."""
    try:
        return _parsed(text, "it")
    except ConfigError:
        raise ConfigError("the value is no YAML") from None


def _message(finding: Any, given: Given) -> str:
    """`engines[0].url: field required`; what was written there is not repeated, since it may be a secret."""
    path = _path(finding["loc"], given.values, missing=finding["type"] == "missing")
    name = given.variable(path)
    return _said(finding, path) + ("" if name is None else f", from {name}")


def _said(finding: Any, path: str) -> str:
    if finding["type"] == "extra_forbidden":
        return f"{path}: there is no such key"
    if finding["type"] in ("union_tag_invalid", "union_tag_not_found"):
        kinds = "embedded, sglang_process, sglang, vllm, llama_cpp, kvgate, openai and anthropic"
        return f"{path}.kind: missing or unknown; there are {kinds}"
    text = finding["msg"].removeprefix("Value error, ").partition(", unable to parse")[0]
    return f"{path}: {text[:1].lower()}{text[1:]}" if path else text


def _path(location: tuple[str | int, ...], given: Any, *, missing: bool) -> str:
    """Without the names of a union's members, which are not in the file. `missing`: nor is the last key."""
    path, node = "", given
    for index, step in enumerate(location):
        absent = missing and index == len(location) - 1
        if isinstance(step, int) and isinstance(node, list):
            path, node = f"{path}[{step}]", node[step] if step < len(node) else None
        elif isinstance(node, dict) and (step in node or absent):
            path, node = (f"{path}.{step}" if path else str(step)), node.get(step)
    return path
