"""Log lines with named fields: `key=value` for people, one JSON object a line for machines."""

import logging
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

import orjson

_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error"}
_MOST_LINES = 1000  # that wait to be written
_PLAIN = re.compile(r"[!#-<>-~]+")  # printable ASCII without blanks, quotes and equals signs
_INCOMPLETE = "ASGI callable returned without completing response."


class _Stamps:
    """Times as text, made anew once a second: it takes as long as all the rest of a line."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._second, self._text = -1, ""

    def of(self, created: float) -> str:
        second = int(created)
        if second != self._second:
            self._text = time.strftime(self._form, time.localtime(created))
            self._second = second
        return self._text


class LineFormatter(logging.Formatter):
    """What both forms of a line share.

    Attributes:
        always: fields of every line, behind its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.always: dict[str, object] = {}

    def line(
        self, created: float, level: str, message: str, fields: Mapping[str, object], trace: str | None = None
    ) -> str:
        """`created` in seconds since the epoch, `level` as logging names it, `trace` of an exception."""
        raise NotImplementedError

    def format(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else None
        return self.line(record.created, record.levelname, record.getMessage(), _fields(record), trace)


class LogfmtFormatter(LineFormatter):
    """`2026-01-31T12:00:00 info request id=req_1 status=200 ttft_ms=151.3`."""

    def __init__(self) -> None:
        super().__init__()
        self._stamps = _Stamps("%Y-%m-%dT%H:%M:%S")

    def line(
        self, created: float, level: str, message: str, fields: Mapping[str, object], trace: str | None = None
    ) -> str:
        told = "".join([f" {name}={_word(value)}" for name, value in {**fields, **self.always}.items()])
        behind = "" if trace is None else f"\n{trace}"
        return f"{self._stamps.of(created)} {_LEVELS.get(level, level)} {_one_line(message)}{told}{behind}"


class JsonFormatter(LineFormatter):
    """`{"time": ..., "level": ..., "message": ..., fields...}`."""

    def __init__(self) -> None:
        super().__init__()
        self._stamps = _Stamps("%Y-%m-%dT%H:%M:%S%z")

    def line(
        self, created: float, level: str, message: str, fields: Mapping[str, object], trace: str | None = None
    ) -> str:
        line = {
            "time": self._stamps.of(created),
            "level": _LEVELS.get(level, level),
            "message": message,
            **fields,
            **self.always,
        }
        if trace is not None:
            line["trace"] = trace
        return orjson.dumps(line, default=str).decode()


class BatchedHandler(logging.Handler):
    """Writes lines together, a moment later: for each its own write would cost a request more than making it does.

    Warnings and errors are written at once, with what came before them. A kill loses no more than `wait_s` of lines.
    """

    def __init__(self, stream: TextIO, formatter: LineFormatter, wait_s: float = 0.1) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines_of = formatter
        self._stream = stream
        self._wait_s = wait_s
        self._lines: deque[str] = deque()  # appended to by any thread, taken by whoever writes
        self._writing = threading.RLock()
        self._some = threading.Event()
        threading.Thread(target=self._write_later, name="kvgate-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  as all of logging's handlers do
            self.handleError(record)
            return
        self._take([line], record.levelno)

    def emit_all(self, level: int, message: str, every: Sequence[Mapping[str, object]]) -> bool:
        """A line of now for each of `every`, which are its fields. False: one cannot be made, and none was taken."""
        now, name = time.time(), logging.getLevelName(level)
        try:
            lines = [self.lines_of.line(now, name, message, fields) for fields in every]
        except Exception:  # noqa: BLE001  which one it is, a record tells
            return False
        self._take(lines, level)
        return True

    def _take(self, lines: Sequence[str], level: int) -> None:
        self._lines.extend(lines)
        if level >= logging.WARNING or len(self._lines) >= _MOST_LINES:
            self.flush()
        elif not self._some.is_set():
            self._some.set()

    def flush(self) -> None:
        """Write what waits. Lines are in the order in which they came."""
        with self._writing:
            lines: list[str] = []
            with suppress(IndexError):  # a signal's handler may have taken the last one meanwhile
                while True:
                    lines.append(self._lines.popleft())
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


def log_all(logger: logging.Logger, level: int, message: str, every: Sequence[Mapping[str, object]]) -> None:
    """`logger.log(level, message, extra={"fields": fields})` for each of `every`.

    Where all that listens is our own handler, the way to it is gone once, and no records are made.
    """
    if not every or not logger.isEnabledFor(level):
        return
    ours = _only_ours(logger)
    if ours is not None and ours.emit_all(level, message, every):
        return
    for fields in every:
        logger.handle(
            logger.makeRecord(logger.name, level, "", 0, message, (), None, extra={"fields": fields})
        )


def _only_ours(logger: logging.Logger) -> BatchedHandler | None:
    """The handler that gets all of this logger's lines, where nobody else does and none is filtered."""
    if logger.filters:
        return None
    found: list[logging.Handler] = []
    at: logging.Logger | None = logger
    while at is not None:
        found += at.handlers
        at = at.parent if at.propagate else None
    if len(found) != 1 or found[0].filters or found[0].level > logging.NOTSET:
        return None
    return found[0] if isinstance(found[0], BatchedHandler) else None


class _NotOurCut(logging.Filter):
    """The server calls a connection which we cut on purpose an error; our own line says it already."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != _INCOMPLETE


def configure_logs(*, json: bool) -> None:
    """Send every log line of this process to stderr."""
    handler = BatchedHandler(sys.stderr, JsonFormatter() if json else LogfmtFormatter())
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
        if isinstance(handler, BatchedHandler):
            handler.lines_of.always = {"process": name}


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
