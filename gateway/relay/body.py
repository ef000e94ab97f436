"""What the gateway reads of a body that goes on to another engine; all the rest is for that engine to judge."""

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict

from gateway.settings import GatewaySettings
from gateway.wire.extension import KvgateFields, check_extension
from gateway.wire.template_fields import TemplateFields, check_template
from gateway.wire.validation import WireModel, validate


class StreamOptions(WireModel):
    """How a stream is written."""

    include_usage: bool | None = None


class RelayedBody(TemplateFields):
    """Fields that are acted upon here."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    kvgate: KvgateFields | None = None

    previous_response_id: Any = None  # of the Responses API
    conversation: Any = None
    input: Any = None
    store: Any = None

    @property
    def asks_usage(self) -> bool:
        """Whether the client wants usage in a stream."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check(self, settings: GatewaySettings) -> None:
        """Raises ApiError 400 for what contradicts the operator's limits, or would change how prompts are rendered."""
        check_template(self)
        check_extension(self.kvgate, settings)


def relayed(body: Mapping[str, Any]) -> RelayedBody:
    """What is acted upon of a body; raises ApiError 400 for a field of another type."""
    if _ACTED_UPON.isdisjoint(body) and type(body.get("model")) is str:
        return _NOTHING_SAID  # as most chats: their model was found by now
    return validate(RelayedBody, body)


_ACTED_UPON = frozenset(RelayedBody.model_fields) - {"model"}
_NOTHING_SAID = RelayedBody()
