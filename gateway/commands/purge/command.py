"""Asks the admin app, and says place by place what became of it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson

DONE, INCOMPLETE, UNUSABLE = 0, 1, 2  # exit codes
KEY = "KVGATE_ADMIN_KEY"
_WAIT_S = 600.0  # disks are erased in this time


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """What is to be forgotten, and where to ask."""

    tenant: str
    group: bool
    flush_engines: bool
    config: Path | None  # a file with `admin:`
    url: str | None
    key_env: str


class _UnusableError(Exception):
    """Nobody can be asked."""


def run(options: PurgeOptions, environ: Mapping[str, str], *, as_json: bool) -> int:
    """The exit code."""
    try:
        url, key = _place(options, environ)
        answer = _asked(url, key, options)
    except _UnusableError as error:
        print(f"kvgate purge: {error}", file=sys.stderr)
        return UNUSABLE
    if as_json:
        print(orjson.dumps(answer).decode())
    else:
        for name, place in answer["places"].items():
            print(_line(name, place))
    return DONE if answer["complete"] else INCOMPLETE


def _place(options: PurgeOptions, environ: Mapping[str, str]) -> tuple[str, str]:
    """The admin app's address, and its key."""
    if options.config is None:
        key = environ.get(options.key_env, "").strip()
        if not key:
            raise _UnusableError(f"the environment has no {options.key_env}, which holds the admin key")
        return (options.url or "http://127.0.0.1:8001").rstrip("/"), key
    from gateway.config.errors import ConfigError
    from gateway.config.load import load_config

    try:
        admin = load_config(options.config, environ).admin
        if admin is None:
            raise _UnusableError(f"{options.config} has no admin:, so there is nobody to ask")
        host = f"[{admin.host}]" if ":" in admin.host else admin.host
        return (options.url or f"http://{host}:{admin.port}").rstrip("/"), admin.key.read(
            "admin.key", environ
        )
    except ConfigError as error:
        raise _UnusableError(str(error)) from error


def _asked(url: str, key: str, options: PurgeOptions) -> dict[str, Any]:
    body = {"tenant": options.tenant, "group": options.group, "flush_engines": options.flush_engines}
    headers = {"authorization": f"Bearer {key}"}
    try:
        with httpx.Client(trust_env=False, timeout=_WAIT_S) as client:
            answer = client.post(f"{url}/admin/purge", json=body, headers=headers)
        told = orjson.loads(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _UnusableError(f"the gateway's admin app does not answer at {url}: {error}") from error
    except orjson.JSONDecodeError:
        raise _UnusableError(f"what answers at {url} is no admin app of kvgate") from None
    if answer.status_code != 200 or not isinstance(told, dict) or "places" not in told:
        refused = told.get("error") if isinstance(told, dict) else None
        said = refused.get("message") if isinstance(refused, dict) else f"status {answer.status_code}"
        raise _UnusableError(f"the gateway refuses: {said}")
    return told


def _line(name: str, place: Mapping[str, Any]) -> str:
    count, detail = place["count"], place["detail"]
    words = " ".join(str(part) for part in (count, detail) if part not in (None, ""))
    mark = "  " if place["complete"] else "! "
    return f"{mark}{name:<12} {words or 'forgotten'}"
