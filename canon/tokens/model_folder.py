"""What a model's folder says about its tokenizer and chat templates. The only reading of files in canon."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tokenizers import AddedToken

from canon.errors import ModelFolderError

# Named special tokens that templates get as variables, in Transformers' order.
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The files' content, before anything is compiled."""

    tokenizer_json: bytes
    templates: Mapping[str, str]  # by name; "default" and perhaps "tool_use", ...
    variables: Mapping[str, str]  # bos_token, eos_token, ... as templates see them
    declared_tokens: tuple[AddedToken, ...]  # with flags of their own, which come before tokenizer.json's
    named_tokens: tuple[
        AddedToken, ...
    ]  # named in the configuration; to be added where the tokenizer has none


def read_model_folder(folder: Path) -> ModelFolder:
    """Reads `tokenizer.json`, `tokenizer_config.json` and template files. Raises `ModelFolderError`."""
    config = _json_file(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        config |= _json_file(folder / "special_tokens_map.json")
    return ModelFolder(
        tokenizer_json=_bytes_of(folder / "tokenizer.json", needed=True),
        templates=_template_files(folder)
        or _configured_templates(config.get("chat_template"))
        or _configured_templates(
            _json_file(folder / "chat_template.json").get("chat_template")
        ),  # older VLMs
        variables=_variables(config),
        declared_tokens=_declared_tokens(config),
        named_tokens=_missing_tokens(config),
    )


def _bytes_of(path: Path, *, needed: bool = False) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        if needed:
            raise ModelFolderError(f"{path} is missing") from error
        return b""
    except OSError as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error


def _text_of(path: Path) -> str:
    try:
        return _bytes_of(path).decode().replace("\r\n", "\n")  # as a file opened in text mode reads
    except UnicodeDecodeError as error:
        raise ModelFolderError(f"{path} is not UTF-8: {error}") from error


def _json_file(path: Path) -> dict[str, Any]:
    content = _bytes_of(path)
    try:
        value = orjson.loads(content) if content else {}
    except orjson.JSONDecodeError as error:
        raise ModelFolderError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFolderError(f"{path} is not a JSON object")
    return value


def _template_files(folder: Path) -> dict[str, str]:
    """Templates in files of their own, which come before those in the configuration."""
    paths = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        paths.setdefault("default", folder / "chat_template.jinja")
    return {name: _text_of(path) for name, path in paths.items()}


def _configured_templates(configured: Any) -> dict[str, str]:
    if isinstance(configured, str):
        return {"default": configured}
    if isinstance(configured, list):  # [{"name": ..., "template": ...}]
        configured = {t["name"]: t["template"] for t in configured if isinstance(t, dict) and "name" in t}
    if isinstance(configured, dict):
        return {str(name): str(template) for name, template in configured.items()}
    return {}


def _token_text(value: Any) -> str | None:
    """A token is written as its text, or as an object with the text in `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _named_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration's named special tokens: the usual ones, then the model's own ones."""
    own = {key: value for key, value in config.items() if key.endswith("_token") and key not in _NAMED_TOKENS}
    extra = config.get("extra_special_tokens")
    own |= extra if isinstance(extra, dict) else {}
    named = {key: config.get(key) for key in _NAMED_TOKENS} | own
    return {key: value for key, value in named.items() if _token_text(value) is not None}


def _variables(config: Mapping[str, Any]) -> dict[str, str]:
    return {key: text for key, value in _named_tokens(config).items() if (text := _token_text(value))}


def _declared_tokens(config: Mapping[str, Any]) -> tuple[AddedToken, ...]:
    decoder = config.get("added_tokens_decoder")
    by_id = {int(key): value for key, value in decoder.items()} if isinstance(decoder, dict) else {}
    return tuple(_added_token(by_id[key]) for key in sorted(by_id))


def _missing_tokens(config: Mapping[str, Any]) -> tuple[AddedToken, ...]:
    listed = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    values = [*_named_tokens(config).values(), *(listed if isinstance(listed, list) else [])]
    return tuple(_added_token(value) for value in values if _token_text(value))


def _added_token(value: Any) -> AddedToken:
    flags = value if isinstance(value, dict) else {}
    return AddedToken(
        _token_text(value) or "",
        single_word=bool(flags.get("single_word", False)),
        lstrip=bool(flags.get("lstrip", False)),
        rstrip=bool(flags.get("rstrip", False)),
        normalized=bool(flags.get("normalized", False)),
        special=bool(flags.get("special", True)),
    )
