"""`kvgate doctor --isolation`: two tenants ask, and the exit code says whether they are apart."""

import asyncio
import secrets
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import get_args

import orjson
from rich.console import Console

from engine_adapters.base import Tier
from engine_adapters.errors import EngineError
from engine_adapters.remote.http_engine import HttpOptions
from gateway.commands.doctor.isolation_terminal import print_isolation
from gateway.commands.doctor.keys import key_headers, key_of
from gateway.commands.doctor.looking import UNUSABLE, check_url, found_kind, say
from gateway.reports.doctor.kinds import KINDS, UNKNOWN, advice_for, engine_of, model_cards, route_of
from gateway.reports.doctor.prober import Prober
from gateway.reports.errors import DoctorError
from gateway.reports.isolation import Examination, Isolation, Scale, Sides

TIERS: tuple[Tier, ...] = get_args(Tier)
EXIT_CODES = {"isolated": 0, "leaks": 1, "cannot tell": 3}


@dataclass(frozen=True, slots=True)
class IsolationOptions:
    """What was asked for on the command line. Places of keys: `env:NAME`, `file:PATH`, or a variable's name."""

    url: str
    kind: str | None = None
    model: str | None = None
    key: str | None = None  # of an engine that is asked itself, under two salts
    key_a: str | None = None
    key_b: str | None = None
    key_mate: str | None = None  # of a tenant of A's group
    words: int = 1500
    trials: int = 24
    fill_tokens: int = 200_000
    tiers: tuple[str, ...] = ()


def run(options: IsolationOptions, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Examine and print; the exit code."""
    try:
        found = asyncio.run(_examined(options, environ))
    except (DoctorError, EngineError) as error:
        say(str(error))
        return UNUSABLE
    if as_json:
        sys.stdout.write(orjson.dumps(found.as_json(), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        print_isolation(found, Console(file=sys.stdout, width=None if sys.stdout.isatty() else 118))
    return EXIT_CODES[found.verdict]


async def _examined(options: IsolationOptions, environ: Mapping[str, str]) -> Isolation:
    check_url(options.url)
    keys = _keys(options, environ)
    http = HttpOptions(headers=key_headers(options.kind, keys[0]))
    kind = options.kind or await found_kind(options.url, http) or UNKNOWN
    if kind not in KINDS:
        raise DoctorError(f"There is no kind {kind}: it is one of {', '.join(KINDS)}.")
    salts = _salts(options, kind)
    scale = Scale(options.words, options.trials, options.fill_tokens, _tiers(options))
    async with AsyncExitStack() as stack:
        probers = [await _prober(options, kind, key, stack) for key in keys]
        mate = probers[2] if len(probers) > 2 else None
        sides = Sides(probers[0], probers[1], mate, *salts)
        return await Examination(options.url, sides, scale, seed=secrets.token_hex(8), say=say).examine()


def _keys(options: IsolationOptions, environ: Mapping[str, str]) -> list[str | None]:
    """The owner's, the other's, and that of the owner's mate where there is one."""
    if options.key_a is None and options.key_b is None and options.key_mate is None:
        key = None if options.key is None else key_of(options.key, environ, "--key-env or --key-file")
        return [key, key]
    if options.key_a is None or options.key_b is None:
        raise DoctorError("Two tenants are needed: --key-a and --key-b.")
    if options.key is not None:
        raise DoctorError(
            "--key-a and --key-b are all the keys there are: leave out --key-env and --key-file."
        )
    places = {"--key-a": options.key_a, "--key-b": options.key_b, "--key-mate": options.key_mate}
    keys = [key_of(place, environ, option) for option, place in places.items() if place is not None]
    if len(set(keys)) < len(keys):
        raise DoctorError("Two of the keys are the same: each has to be another tenant's.")
    return [*keys]


def _tiers(options: IsolationOptions) -> tuple[Tier, ...]:
    for name in options.tiers:
        if name not in TIERS:
            raise DoctorError(f"There is no tier {name}: it is one of {', '.join(TIERS)}.")
    return tuple(tier for tier in TIERS if tier in options.tiers)


def _salts(options: IsolationOptions, kind: str) -> tuple[str | None, str | None]:
    if options.key_a is not None:
        return None, None
    if not advice_for(kind).takes_salt:
        raise DoctorError(
            f"Name two tenants' keys with --key-a and --key-b: {kind} takes no salts that could stand for tenants."
        )
    return secrets.token_hex(32), secrets.token_hex(32)


async def _prober(options: IsolationOptions, kind: str, key: str | None, stack: AsyncExitStack) -> Prober:
    engine = engine_of(kind, options.url, HttpOptions(headers=key_headers(kind, key)))
    stack.push_async_callback(engine.aclose)
    model = options.model
    if model is None:
        names = [card.get("id") for card in await model_cards(engine)]
        model = next((name for name in names if isinstance(name, str)), None)
    if model is None:
        raise DoctorError("No model is listed: name one with --model.")
    return Prober(engine, model, route_of(kind), lambda _: None)
