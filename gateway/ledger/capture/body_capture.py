"""Bodies on their way from the request path to files, on a thread of their own."""

import json
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from canon.memory.answer_stream import assembled
from engine_adapters.reuse.sse import EventSplitter, event_data
from gateway.ledger.capture.files import CaptureFiles
from gateway.ledger.capture.redaction import Redaction
from gateway.ledger.errors import LedgerConfigError

log = logging.getLogger("kvgate.ledger")

MIB = 1 << 20
_WAIT_S = 0.5  # between two looks at the queue


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What is captured, and how much of it at most. Sizes are bytes."""

    folder: Path
    share: float = 0.01  # of requests, 0 to 1
    redaction: Redaction = field(default_factory=Redaction)
    responses: bool = True
    body_bytes: int = 4 * MIB  # a larger request is not kept, and a larger response left out
    queue_bytes: int = 32 * MIB  # that wait for the disk
    file_bytes: int = 64 * MIB
    total_bytes: int = 1024 * MIB  # of the whole folder; the oldest files go


def capture_settings(
    folder: Path,
    share: float = 0.01,
    redact: Sequence[str] = (),
    redact_patterns: Sequence[str] = (),
    structure_only: bool = False,
    *,
    responses: bool = True,
    max_gib: float = 1,
) -> CaptureSettings:
    """Settings as an operator writes them. Raises LedgerConfigError for a path or pattern that cannot be read."""
    total = int(max_gib * 1024 * MIB)
    return CaptureSettings(
        folder.expanduser(),
        share,
        Redaction(redact, redact_patterns, structure_only),
        responses=responses,
        file_bytes=max(1, min(64 * MIB, total // 4)),
        total_bytes=total,
    )


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """What became of chosen requests so far."""

    kept: int = 0
    dropped: int = 0  # the queue or the folder was full, or the body too large
    failed: int = 0  # they could not be read, redacted or written


@dataclass(frozen=True, slots=True)
class _Taken:
    request: bytes
    response: bytes | None
    stream: bool
    facts: Mapping[str, str]  # id, tenant, model, engine


class BodyCapture:
    """Keeps a share of all bodies as lines that `kvgate lint` reads. Start it, take, close it.

    Raises:
        LedgerConfigError: the folder or the share cannot be used.
    """

    def __init__(self, settings: CaptureSettings) -> None:
        if not 0 <= settings.share <= 1:
            raise LedgerConfigError(f"a share lies between 0 and 1, and {settings.share:g} does not")
        self._settings = settings
        self._files = CaptureFiles(settings.folder, settings.file_bytes, settings.total_bytes)
        self._threshold = int(settings.share * 2**64)
        self._queue: deque[_Taken] = deque()
        self._waiting = self._kept = self._dropped = self._failed = 0
        self._size_lock = threading.Lock()
        self._file_lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="kvgate-capture", daemon=True)

    @property
    def body_bytes(self) -> int:
        """Bytes of a body; nothing of a larger one is kept."""
        return self._settings.body_bytes

    def start(self) -> "BodyCapture":
        """Begin to write."""
        self._thread.start()
        return self

    def wants(self, request_id: str) -> bool:
        """Whether this request is one of the share: always the same answer for the same id."""
        digest = blake2b(request_id.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self._threshold

    def take(
        self,
        request_id: str,
        request: bytes,
        *,
        response: bytes | None = None,
        stream: bool = False,
        tenant: str = "default",
        model: str = "",
        engine: str = "",
    ) -> None:
        """Queue one exchange that `wants` wanted. Never waits and never raises; parsing is the thread's work.

        Args:
            request: the body as the client sent it.
            response: the answer's bytes, as a JSON body or, with `stream`, as server-sent events.
        """
        limit = self._settings.body_bytes
        if response is not None and (not self._settings.responses or len(response) > limit):
            response = None
        size = len(request) + len(response or b"")
        facts = {"id": request_id, "tenant": tenant, "model": model, "engine": engine}
        with self._size_lock:
            if self._closing or len(request) > limit or self._waiting + size > self._settings.queue_bytes:
                self._dropped += 1
                return
            self._waiting += size
        self._queue.append(_Taken(request, response, stream, facts))

    def too_large(self) -> None:
        """Count a request that `wants` wanted and whose body was not even collected."""
        with self._size_lock:
            self._dropped += 1

    def forget(self, tenant: str) -> int:
        """Take a tenant's lines out of the files; how many there were. Waits for the disk.

        Raises:
            OSError: a file could not be written.
        """
        with self._file_lock:
            return self._files.forget(tenant)

    def counts(self) -> CaptureCounts:
        """What became of chosen requests so far."""
        return CaptureCounts(self._kept, self._dropped, self._failed)

    def close(self, wait_s: float = 5.0) -> None:
        """Write what waits, for so long at most."""
        with self._size_lock:
            self._closing = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(wait_s)
        if self._thread.is_alive():
            log.error(
                "captured bodies were lost at the end", extra={"fields": {"requests": len(self._queue)}}
            )

    def _run(self) -> None:
        closing = False
        while not closing:
            self._wake.wait(_WAIT_S)
            closing = self._closing  # before the queue is emptied: nothing is taken behind it
            while self._queue:
                with self._file_lock:  # whoever forgets a tenant forgets this one, too, or it comes behind
                    taken = self._queue.popleft()
                    self._keep(taken)
                with self._size_lock:
                    self._waiting -= len(taken.request) + len(taken.response or b"")
        try:
            with self._file_lock:
                self._files.close()
        except OSError as error:
            self._fail(error)

    def _keep(self, taken: _Taken) -> None:
        try:
            if self._files.append(self._line(taken)):
                self._kept += 1
            else:
                self.too_large()
        except Exception as error:  # noqa: BLE001  whatever a body has in it, the next ones are kept
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed += 1
        if self._failed == 1:
            # Its own text is left out, since it may quote a body; of the disk it says what is wrong.
            reason = error.strerror if isinstance(error, OSError) else None
            fields = {"folder": str(self._settings.folder), "error": type(error).__name__, "reason": reason}
            log.error("a body could not be captured", extra={"fields": fields})

    def _line(self, taken: _Taken) -> bytes:
        parts = [f'"{name}":{json.dumps(value)}'.encode() for name, value in taken.facts.items() if value]
        parts.insert(0, b'"request":' + self._body(taken.request))
        response = _whole(taken) if taken.response is not None else None
        if response:
            parts.append(b'"response":' + self._body(response))
        return b"{" + b",".join(parts) + b"}\n"

    def _body(self, data: bytes) -> bytes:
        """On one line; as it came where nothing is taken out, since its very form may be what breaks prefixes."""
        parsed = json.loads(data)
        if not self._settings.redaction.changes:
            return (
                data.strip().replace(b"\n", b" ").replace(b"\r", b" ")
            )  # which JSON has between values only
        redacted = self._settings.redaction.applied(parsed, self._files.key)
        return json.dumps(redacted, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        )


def _whole(taken: _Taken) -> bytes | None:
    """The answer as one body; None: it has none."""
    assert taken.response is not None
    if not taken.stream:
        return taken.response
    splitter = EventSplitter()
    events = [*splitter.feed(taken.response), splitter.rest()]
    answer = assembled([payload for payload in map(_payload, events) if isinstance(payload, dict)])
    return None if answer is None else json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _payload(event: bytes) -> Any:
    try:
        return json.loads(event_data(event))
    except ValueError:  # [DONE], comments, and what is no JSON
        return None
