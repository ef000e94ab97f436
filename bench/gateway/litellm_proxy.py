"""LiteLLM's proxy as a peer, in an environment of its own: it wants other versions of what kvgate uses."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson
import psutil

from bench.gateway.bodies import MODEL
from bench.gateway.load import KEY
from bench.gateway.processes import PeerError, Running, started, wait_until_up
from cache_core.user_folder import cache_dir

COMMAND = "KVGATE_LITELLM"  # names the `litellm` program
PACKAGE = "litellm[proxy]"
_INSTALL_S = 1200
_START_S = 180
# Neither telemetry nor a price list from elsewhere.
_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "DO_NOT_TRACK": "1",
    "NO_PROXY": "127.0.0.1",
}


def program(given: Path | None, environ: Mapping[str, str], progress: Callable[[str], None]) -> Path:
    """The `litellm` to run: the one that is named, else one of the bench's own, which is made where it is missing.

    Raises:
        PeerError: it cannot be had; the message says why.
    """
    named = given or (Path(environ[COMMAND]) if environ.get(COMMAND) else None)
    if named is not None:
        if not named.is_file():
            raise PeerError(f"there is no {named}")
        return named
    folder = cache_dir(environ) / "litellm"
    own = folder / "bin" / "litellm"
    if not own.is_file():
        _install(folder, progress)
    return own


def _install(folder: Path, progress: Callable[[str], None]) -> None:
    progress(f"installing {PACKAGE} for itself in {folder}: some 500 MB, once")
    _checked([sys.executable, "-m", "venv", str(folder)])
    _checked([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", PACKAGE])


def _checked(command: list[str]) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{PACKAGE} could not be installed: {type(error).__name__}") from error
    if ended.returncode:
        told = (ended.stderr or ended.stdout).strip().splitlines() or ["no reason given"]
        raise PeerError(f"{PACKAGE} could not be installed: {told[-1][:200]}")


@contextmanager
def litellm(command: Path, upstream: int, folder: Path, core: int | None) -> Iterator[Running]:
    """One worker of it in front of `upstream`."""
    config, log, port = folder / "litellm.json", folder / "litellm.log", _free_port()
    config.write_bytes(orjson.dumps(_config(upstream)))  # JSON is YAML, too
    run = [str(command), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environ = {**_QUIET, "PYTHONPATH": "", "LITELLM_MASTER_KEY": KEY}
    with started([*run, "--num_workers", "1", "--telemetry", "False"], log, core, environ) as child:
        wait_until_up(f"http://127.0.0.1:{port}/health/liveliness", child, log, _START_S)
        yield Running("LiteLLM proxy", psutil.Process(child.pid), port)


def _config(upstream: int) -> dict[str, object]:
    sent = {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    return {
        "model_list": [{"model_name": MODEL, "litellm_params": sent}],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
