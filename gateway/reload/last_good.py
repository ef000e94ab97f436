"""The newest configuration that could be used, for processes that are started again while the file is broken."""

import json
import logging
import os
from pathlib import Path

from gateway.config.effective import plain
from gateway.config.errors import ConfigError
from gateway.config.load import check_config
from gateway.config.model import Config

log = logging.getLogger("kvgate.gateway")


class LastGood:
    """In a file of a folder that nobody else may enter."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def keep(self, config: Config) -> None:
        """This one counts."""
        new = self._file.with_suffix(f".{os.getpid()}")
        try:
            new.write_text(json.dumps(plain(config)))
            new.chmod(0o600)
            new.replace(self._file)
        except (OSError, TypeError, ValueError) as error:
            fields = {"error": str(error)}
            log.warning("the configuration that counts is not kept for restarts", extra={"fields": fields})

    def load(self) -> Config | None:
        """None: there is none."""
        try:
            return check_config(json.loads(self._file.read_text()))
        except (OSError, ValueError, ConfigError):
            return None
