"""Log lines with named fields: `key=value` for people, one JSON object a line for machines."""

import logging
import re
import sys
import threading
import time
from typing import Any, TextIO

import orjson

_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}
_MOST_LINES = 1000  # that wait to be written
_PLAIN = re.compile(r"[!#-<>-~]+")  # printable ASCII without blanks, quotes and equals signs
_INCOMPLETE = "ASGI callable returned without completing response."


class _Stamps:
    """Times as text, made anew once a second: it takes as long as all the rest of a line."""

    def __init__(self) -> None:
        self._second, self._text = -1, ""

    def of(self, formatter: logging.Formatter, record: logging.LogRecord, form: str) -> str:
        second = int(record.created)
        if second != self._second:
            self._text = formatter.formatTime(record, form)
            self._second = second
        return self._text


class LogfmtFormatter(logging.Formatter):
    """`2026-01-31T12:00:00 info request id=req_1 status=200 ttft_ms=151.3`."""

    def __init__(self) -> None:
        super().__init__()
        self._stamps = _Stamps()

    def format(self, record: logging.LogRecord) -> str:
        stamp = self._stamps.of(self, record, "%Y-%m-%dT%H:%M:%S")
        level = _LEVELS.get(record.levelname, record.levelname)
        fields = "".join(f" {name}={_word(value)}" for name, value in _fields(record).items())
        return f"{stamp} {level} {_one_line(record.getMessage())}{fields}{_trace(self, record)}"


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "message": ..., fields...}`."""

    def __init__(self) -> None:
        super().__init__()
        self._stamps = _Stamps()

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self._stamps.of(self, record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": _LEVELS.get(record.levelname, record.levelname),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class BatchedHandler(logging.Handler):
    """Writes lines together, a moment later: for each its own write would cost a request more than making it does.

    Warnings and errors are written at once, with what came before them. A kill loses no more than `wait_s` of lines.
    """

    def __init__(self, stream: TextIO, wait_s: float = 0.1) -> None:
        super().__init__()
        self._stream = stream
        self._wait_s = wait_s
        self._lines: list[str] = []
        self._writing = threading.RLock()
        self._some = threading.Event()
        threading.Thread(target=self._write_later, name="kvgate-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  as all of logging's handlers do
            self.handleError(record)
            return
        self._lines.append(line)
        if record.levelno >= logging.WARNING or len(self._lines) >= _MOST_LINES:
            self.flush()
        elif not self._some.is_set():
            self._some.set()

    def flush(self) -> None:
        """Write what waits. Lines are in the order in which they came."""
        with self._writing:
            lines, self._lines = self._lines, []
            if lines:
                try:
                    self._stream.write("\n".join(lines) + "\n")
                    self._stream.flush()
                except (OSError, ValueError):  # nobody reads it, or it is closed: there is nowhere to say so
                    return

    def _write_later(self) -> None:
        while True:
            self._some.wait()
            self._some.clear()
            time.sleep(self._wait_s)
            self.flush()


class _NotOurCut(logging.Filter):
    """The server calls a connection which we cut on purpose an error; our own line says it already."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != _INCOMPLETE


def configure_logs(*, json: bool) -> None:
    """Send every log line of this process to stderr."""
    handler = BatchedHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if json else LogfmtFormatter())
    # Where a line was written, and by which thread, is in none of ours.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
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
    # Quoted values keep a line one line, whatever a client put into a path or a model's name.
    return text if _PLAIN.fullmatch(text) else orjson.dumps(text.encode("utf-8", "replace").decode()).decode()


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return "\n" + formatter.formatException(record.exc_info) if record.exc_info else ""
