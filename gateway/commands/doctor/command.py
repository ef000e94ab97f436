"""The command itself: examines one engine, prints what it found, and says by its exit code whether all is well."""

import asyncio
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
from rich.console import Console

from canon.errors import CanonError
from canon.tokens import PromptTokenizer
from engine_adapters.errors import EngineError
from engine_adapters.remote.http_engine import HttpOptions
from gateway.commands.doctor.keys import key_headers, key_of
from gateway.commands.doctor.looking import UNUSABLE, check_url, found_kind, say
from gateway.commands.doctor.terminal import print_checkup
from gateway.reports.doctor import Checkup, Doctor
from gateway.reports.doctor.kinds import KINDS, UNKNOWN, engine_of
from gateway.reports.errors import DoctorError

WELL, ILL = 0, 1  # exit codes


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
    kv_events: str | None = None  # where it publishes; None: where it says that it does


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
    check_url(options.url)
    key = _key(options, environ)
    tokenizer = None if options.tokenizer is None else PromptTokenizer.from_folder(options.tokenizer)
    http = HttpOptions(headers=key_headers(options.kind, key))
    found = options.kind or await found_kind(options.url, http)
    kind = found or UNKNOWN
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
            kind_known=found is not None,
            kv_events=options.kv_events,
            seed=seed,
            say=say,
        )
        return await doctor.examine()
    finally:
        await engine.aclose()


def _key(options: DoctorOptions, environ: Mapping[str, str]) -> str | None:
    if options.key_env is not None and options.key_file is not None:
        raise DoctorError("The key is in the environment or in a file: say one of --key-env and --key-file.")
    if options.key_file is not None:
        return key_of(f"file:{options.key_file}", environ, "--key-file")
    return None if options.key_env is None else key_of(f"env:{options.key_env}", environ, "--key-env")
