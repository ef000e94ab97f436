"""The shared state, as the parts of a gateway see it."""

from gateway.shared_state.circuit import Circuit
from gateway.shared_state.clients import ANY, probing_client, where
from gateway.shared_state.options import RedisOptions
from gateway.shared_state.pipe import Pipe
from gateway.shared_state.threaded import ThreadedCalls


class SharedState:
    """One server; nothing is asked of it before it is used. Needs the `redis` package.

    `pipe` is for one event loop, `threaded` for threads. Either finds out that the server is away, and `circuit` tells
    both, so that nobody waits for a server that is known to be away.
    """

    def __init__(self, options: RedisOptions) -> None:
        self.options = options
        self._probing = probing_client(options)
        self.circuit = Circuit(where(options.url), self._probing.ping, ANY, options.probe_s)
        self.threaded = ThreadedCalls(options, self.circuit)
        self.pipe = Pipe(options, self.circuit)

    def look(self) -> bool:
        """Whether the server answers now, which may take a second; where not, that is said, and it is asked again."""
        try:
            self._probing.ping()
        except ANY as error:
            self.circuit.failed(error)
            return False
        return True

    async def aclose(self) -> None:
        """Let go of it; calls that wait are sent before."""
        await self.pipe.aclose()
        self.close()

    def close(self) -> None:
        """The same where no event loop used it."""
        self.circuit.close()
        self.threaded.close()
        self._probing.close()
