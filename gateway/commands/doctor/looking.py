"""What every examination begins with: is this an address, and what answers there."""

import sys

import httpx

from engine_adapters.errors import EngineError
from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.transport import TransportError
from gateway.addresses import engine_url
from gateway.reports.doctor.kinds import UNKNOWN, engine_of, kind_of, model_cards
from gateway.reports.errors import DoctorError

UNUSABLE = 2  # exit code: nothing could be found out


def check_url(url: str) -> None:
    """Raises DoctorError for what is no engine's address."""
    try:
        engine_url(url)
    except ValueError as error:
        raise DoctorError(f"The engine's address: {error}.") from None


async def found_kind(url: str, http: HttpOptions) -> str | None:
    """As the engine's model list tells; None where it does not, and DoctorError where it lists none."""
    engine = engine_of(UNKNOWN, url, http)
    try:
        cards = await model_cards(engine)
    except EngineError as error:
        raise DoctorError(f"{str(error).rstrip('.')}. {_next_step(error)}") from error
    finally:
        await engine.aclose()
    return kind_of(cards[0].get("owned_by") if cards else None)


def _next_step(error: EngineError) -> str:
    if isinstance(error.__cause__, httpx.HTTPError | TransportError):
        return "See that it runs, and that this is its address."
    return (
        "Where it lists no models, say what it is with --kind and --model, and name its key with --key-env or "
        "--key-file."
    )


def say(line: str) -> None:
    """Progress, on stderr."""
    print(f"kvgate doctor: {line}", file=sys.stderr, flush=True)
