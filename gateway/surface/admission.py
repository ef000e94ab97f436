"""What all running requests may hold together; past it, new work is refused and not queued."""

from types import TracebackType
from typing import Self

from gateway.errors import overloaded
from gateway.settings import GatewaySettings


class Ticket:
    """One request and the bytes of body it holds; admitted while its block runs."""

    __slots__ = ("_admission", "held")

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self.held = 0  # bytes

    def __enter__(self) -> Self:
        self._admission.requests += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None
    ) -> None:
        self._admission.requests -= 1
        self._admission.body_bytes -= self.held

    def hold(self, size: int) -> None:
        """Take `size` more bytes; raises ApiError 429 when all requests together hold too many."""
        self._admission.check_bytes(size)
        self.held += size
        self._admission.body_bytes += size


class Admission:
    """Counts requests and body bytes in flight; shared by all generation routes."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.requests = 0
        self.body_bytes = 0

    def take(self, settings: GatewaySettings) -> None:
        """Other bounds from now on; what is in flight counts on."""
        self._settings = settings

    def enter(self) -> Ticket:
        """`with admission.enter():` admits one request; raises ApiError 429 when too many are in flight."""
        if self.requests >= self._settings.max_in_flight:
            raise overloaded("Too many requests are being worked on.", self._settings.retry_after_s)
        return Ticket(self)

    def check_bytes(self, size: int) -> None:
        """Refuse `size` more bytes where they are too many."""
        if self.body_bytes + size > self._settings.max_buffered_bytes:
            raise overloaded("Too much is being sent at once.", self._settings.retry_after_s)
