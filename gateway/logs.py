"""Log lines with named fields: `key=value` for people, one JSON object a line for machines."""

import logging
import sys
from typing import Any

import orjson

_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}
_INCOMPLETE = "ASGI callable returned without completing response."


class LogfmtFormatter(logging.Formatter):
    """`2026-01-31T12:00:00 info request id=req_1 status=200 ttft_ms=151.3`."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        level = _LEVELS.get(record.levelname, record.levelname)
        fields = "".join(f" {name}={_word(value)}" for name, value in _fields(record).items())
        return f"{stamp} {level} {_one_line(record.getMessage())}{fields}{_trace(self, record)}"


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "message": ..., fields...}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": _LEVELS.get(record.levelname, record.levelname),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class _NotOurCut(logging.Filter):
    """The server calls a connection which we cut on purpose an error; our own line says it already."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != _INCOMPLETE


def configure_logs(*, json: bool) -> None:
    """Send every log line of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if json else LogfmtFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("kvgate").setLevel(logging.INFO)
    server = logging.getLogger("uvicorn.error")
    server.filters[:] = [_NotOurCut()]


def name_process(name: str) -> None:
    """Let every line of this process say which one of its server it is."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Named(name))


class _Named(logging.Filter):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._process = name

    def filter(self, record: logging.LogRecord) -> bool:
        record.fields = {**_fields(record), "process": self._process}
        return True


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    plain = text.isascii() and text.isprintable() and text and not set(text) & set(' "=')
    # Quoted values keep a line one line, whatever a client put into a path or a model's name.
    return text if plain else orjson.dumps(text.encode("utf-8", "replace").decode()).decode()


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return "\n" + formatter.formatException(record.exc_info) if record.exc_info else ""
