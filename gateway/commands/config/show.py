"""`kvgate config show FILE`."""

from collections.abc import Mapping
from pathlib import Path

import orjson
import yaml

from gateway.config.effective import effective
from gateway.config.load import load_config


def shown(file: Path | None, environ: Mapping[str, str], *, as_json: bool) -> str:
    """What counts, as a file that says all of it; raises ConfigError."""
    values = effective(load_config(file, environ))
    if as_json:
        return orjson.dumps(values, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)
