"""Fields of a body that would make an engine do what only its operator may ask for. Facts about them, with vLLM 0.32
and SGLang 0.5.23:

custom_logit_processor  SGLang runs it: serialized Python
vllm_xargs              vLLM hands it to plugins, KV connectors among them
kv_transfer_params, ec_transfer_params, bootstrap_*, disagg_prefill_dp_rank
                        whom the engine exchanges KV with, by host and port
lora_path, lora         adapters by path or number, whatever the model's name says (SGLang; llama.cpp)
prompt_embeds, input_embeds, embed_overrides, *_embeds parts
                        serialized tensors that become a part of the prompt
input_ids               SGLang's chat route takes the prompt from here instead of from the messages
return_hidden_states, return_routed_experts
                        the model's inside (SGLang)

and where tenants are told apart:

session_params, session_id   SGLang goes on from what another request left
id_slot, slot_id             llama.cpp's slot: whoever used it last may have been another tenant
rid, request_id              the engine's own name of a request, which two tenants may not both choose
priority                     of the engine's scheduler, over all tenants' requests
routed_dp_rank, data_parallel_rank
                             which of the engine's parts works, and whose cache is there
uuid, content_hash of a part under which an image was cached, whoever sent it (vLLM; SGLang)
"""

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import ApiError

OF_OPERATORS: Final = frozenset(
    {
        "custom_logit_processor", "vllm_xargs", "kv_transfer_params", "ec_transfer_params", "bootstrap_host",
        "bootstrap_port", "bootstrap_room", "disagg_prefill_dp_rank", "lora_path", "lora", "prompt_embeds",
        "input_embeds", "embed_overrides", "input_ids", "return_hidden_states", "return_routed_experts",
        "model_path",
    }
)  # fmt: skip
BETWEEN_TENANTS: Final = frozenset(
    {
        "session_params", "session_id", "id_slot", "slot_id", "rid", "request_id", "priority", "routed_dp_rank",
        "data_parallel_rank",
    }
)  # fmt: skip
_OF_ANY: Final = OF_OPERATORS | BETWEEN_TENANTS
NAMED_MEDIA: Final = frozenset({"uuid", "content_hash"})
EMBEDS: Final = frozenset({"image_embeds", "audio_embeds", "video_embeds", "prompt_embeds"})


def refused_fields(body: Mapping[str, Any], *, tenants: bool) -> list[str]:
    """Names at the top of `body` that a client may not send; `tenants`: there are several that are told apart."""
    refused = _OF_ANY if tenants else OF_OPERATORS
    if refused.isdisjoint(body):
        return []
    # What is off, or nothing, asks for nothing.
    return [
        name for name in sorted(body.keys() & refused) if body[name] is not None and body[name] is not False
    ]


def refusal_of(path: str) -> ApiError:
    """HTTP 400, which names the field and not its value."""
    return ApiError(
        400,
        f"'{path}' may not be sent by clients of this gateway; its operator can allow it.",
        param=path,
        code="field_not_allowed",
    )
