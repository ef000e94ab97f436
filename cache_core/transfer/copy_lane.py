"""Where copies to and from a device run: at once on a CPU, on a stream of their own on an accelerator."""

from collections.abc import Callable
from typing import ParamSpec

import torch

from cache_core.transfer.job import Pending

P = ParamSpec("P")


class CopyLane:
    """One for each direction of one device; on an accelerator its copies run beside the computing."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]

    def after_now(self, copy: Callable[P, None]) -> Callable[P, Pending | None]:
        """`copy`, to be called later by any thread; it waits for what the current stream was given up to now.

        So what is read was written, and what is overwritten is no longer read.
        """
        stream = self._stream
        if stream is None:

            def run_here(*args: P.args, **kwargs: P.kwargs) -> None:
                copy(*args, **kwargs)

            return run_here
        before = torch.cuda.current_stream(self._device).record_event()

        def run_beside(*args: P.args, **kwargs: P.kwargs) -> Pending:
            with torch.cuda.device(self._device), torch.cuda.stream(stream):
                stream.wait_event(before)
                try:
                    copy(*args, **kwargs)
                    return _Recorded(stream.record_event())
                except BaseException:
                    stream.synchronize()  # what it queued before it failed still reads and writes until then
                    raise

        return run_beside


class _Recorded:
    """Copies that end at an event."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        self._event.synchronize()
