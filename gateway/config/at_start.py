"""What a server finds out when it starts with a configuration, before anything is loaded or listened on."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from ipaddress import ip_address

from canon.errors import CanonError
from gateway.config.build import ledger_of, load_of, sglang_options
from gateway.config.engines import EmbeddedEngine, SGLangProcessEngine
from gateway.config.errors import ConfigError
from gateway.config.extras import need
from gateway.config.model import Config
from gateway.ledger.database import check_driver
from gateway.ledger.errors import LedgerConfigError
from gateway.ledger.place import ledger_url
from gateway.local.embedded import missing_packages
from gateway.local.sglang_process import sglang_prompts


def checks_at_start(config: Config, environ: Mapping[str, str]) -> Iterator[Callable[[], object]]:
    """Each raises ConfigError. Nothing is downloaded, connected to or written."""
    yield partial(_check_open, config)
    yield partial(_check_ledger, config, environ)
    yield partial(load_of, config, environ)
    for place, engine in enumerate(config.engines):
        if isinstance(engine, EmbeddedEngine):
            if engine.store is not None:  # also where the engine itself lacks something
                yield partial(engine.store.shared, f"engines[{place}].store", environ)
            yield partial(_check_model, engine, f"engines[{place}]")
            yield partial(_check_template, engine, f"engines[{place}]")
        elif isinstance(engine, SGLangProcessEngine):
            yield partial(_check_python, engine, f"engines[{place}]")
            yield partial(_check_tokenizer, engine, f"engines[{place}]")


def _check_open(config: Config) -> None:
    """As the server does for its socket; the command line may say another host."""
    host = config.server.host
    try:
        here = ip_address(host).is_loopback
    except ValueError:
        return  # a name: what it stands for may be another thing where it is served
    if not here and not config.tenants and not config.server.allow_no_keys:
        raise ConfigError(
            f"server.host: {host} is reached from beyond this machine, and nobody would need a key: write tenants:, "
            "listen on 127.0.0.1, or say allow_no_keys: true where something else keeps strangers out"
        )


def _check_ledger(config: Config, environ: Mapping[str, str]) -> None:
    try:
        url = ledger_url(ledger_of(config), environ)
        if url is not None:
            if url.drivername != "sqlite":
                need("ledger.url", "postgres")
            check_driver(url)
    except LedgerConfigError as error:
        raise ConfigError(f"ledger.url: {error}") from None


def _check_model(engine: EmbeddedEngine, path: str) -> None:
    if engine.model is None or missing_packages():
        return
    from engine_adapters.embedded.models.errors import ModelError
    from engine_adapters.embedded.models.resolve import local_folder

    try:
        local_folder(engine.model)
    except ModelError as error:
        raise ConfigError(f"{path}.model: {error}") from None


def _check_template(engine: EmbeddedEngine, path: str) -> None:
    file = engine.chat_template
    if file is not None and not os.access(file, os.R_OK):
        raise ConfigError(f"{path}.chat_template: {file} is no file that can be read")


def _check_python(engine: SGLangProcessEngine, path: str) -> None:
    if shutil.which(engine.python) is None:
        raise ConfigError(
            f"{path}.python: {engine.python} is no program: name the interpreter that has SGLang"
        )


def _check_tokenizer(engine: SGLangProcessEngine, path: str) -> None:
    try:
        sglang_prompts(sglang_options(engine), engine.model)
    except (CanonError, OSError) as error:
        raise ConfigError(f"{path}.model: {error}") from None
