"""The command itself: examines one engine, prints what it found, and says by its exit code whether all is well."""

import asyncio
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson
from rich.console import Console

from canon.errors import CanonError
from canon.tokens import PromptTokenizer
from engine_adapters.errors import EngineError
from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.transport import TransportError
from gateway.addresses import engine_url
from gateway.commands.doctor.terminal import print_checkup
from gateway.reports.doctor import Checkup, Doctor
from gateway.reports.doctor.kinds import KINDS, engine_of, kind_of, model_cards
from gateway.reports.errors import DoctorError

WELL, ILL, UNUSABLE = 0, 1, 2  # exit codes


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What was asked for on the command line."""

    url: str
    kind: str | None = None  # None: as the engine's model list tells
    model: str | None = None
    key_env: str | None = None  # the name of an environment variable
    tokenizer: Path | None = None
    words: int = 1500
    key_file: Path | None = None


def run(options: DoctorOptions, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Examine and print; the exit code."""
    try:
        checkup = asyncio.run(_examined(options, environ))
    except (DoctorError, EngineError, CanonError) as error:
        say(str(error))
        return UNUSABLE
    if as_json:
        sys.stdout.write(orjson.dumps(checkup.as_json(), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        print_checkup(checkup, Console(file=sys.stdout, width=None if sys.stdout.isatty() else 118))
    return WELL if checkup.healthy else ILL


async def _examined(options: DoctorOptions, environ: Mapping[str, str]) -> Checkup:
    _check_url(options.url)
    tokenizer = None if options.tokenizer is None else PromptTokenizer.from_folder(options.tokenizer)
    http = HttpOptions(headers=_headers(options, environ))
    kind = options.kind or await _found_kind(options.url, http)
    if kind not in KINDS:
        raise DoctorError(f"There is no kind {kind}: it is one of {', '.join(KINDS)}.")
    engine = engine_of(kind, options.url, http)
    try:
        seed = secrets.token_hex(8)
        doctor = Doctor(
            engine,
            kind,
            model=options.model,
            words=options.words,
            tokenizer=tokenizer,
            seed=seed,
            say=say,
        )
        return await doctor.examine()
    finally:
        await engine.aclose()


def _headers(options: DoctorOptions, environ: Mapping[str, str]) -> dict[str, str]:
    key = _key(options, environ)
    if key is None:
        return {}
    return {"x-api-key": key} if options.kind == "anthropic" else {"authorization": f"Bearer {key}"}


def _key(options: DoctorOptions, environ: Mapping[str, str]) -> str | None:
    if options.key_env is not None and options.key_file is not None:
        raise DoctorError("The key is in the environment or in a file: say one of --key-env and --key-file.")
    if options.key_file is not None:
        try:
            key = options.key_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DoctorError(
                f"The key cannot be read from {options.key_file}: {type(error).__name__}."
            ) from error
        where = f"The file {options.key_file}"
    elif options.key_env is not None:
        key, where = environ.get(options.key_env, "").strip(), f"The environment variable {options.key_env}"
    else:
        return None
    if not key:
        raise DoctorError(f"{where} holds no key.")
    return key


def _check_url(url: str) -> None:
    try:
        engine_url(url)
    except ValueError as error:
        raise DoctorError(f"The engine's address: {error}.") from None


def _next_step(error: EngineError) -> str:
    if isinstance(error.__cause__, httpx.HTTPError | TransportError):
        return "See that it runs, and that this is its address."
    return (
        "Where it lists no models, say what it is with --kind and --model, and name its key with --key-env or "
        "--key-file."
    )


async def _found_kind(url: str, http: HttpOptions) -> str:
    engine = engine_of("openai", url, http)
    try:
        cards = await model_cards(engine)
    except EngineError as error:
        raise DoctorError(f"{str(error).rstrip('.')}. {_next_step(error)}") from error
    finally:
        await engine.aclose()
    return kind_of(cards[0].get("owned_by") if cards else None)


def say(line: str) -> None:
    """Progress, on stderr."""
    print(f"kvgate doctor: {line}", file=sys.stderr, flush=True)
