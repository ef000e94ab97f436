"""Which reader belongs to which engine or API."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from engine_adapters.reuse.engines import read_llama_cpp, read_lmdeploy, read_ollama, read_sglang, read_vllm
from engine_adapters.reuse.hosted import read_anthropic, read_bedrock, read_gemini
from engine_adapters.reuse.kvgate import read_kvgate
from engine_adapters.reuse.openai import read_deepseek, read_kimi, read_minimax, read_openai, read_xai
from engine_adapters.reuse.reading import Payload, UsageRead

Reader: TypeAlias = Callable[[Payload], UsageRead]


@dataclass(frozen=True, slots=True)
class Profile:
    """How one engine or API reports usage. The payload is a whole answer, or the last event of a stream."""

    name: str
    read: Reader
    one_prompt: bool = False  # of several prompts in one request it reports one's hits only


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile("openai", read_openai),
            Profile("kvgate", read_kvgate),
            Profile("sglang", read_sglang),
            Profile("vllm", read_vllm, one_prompt=True),
            Profile("llama_cpp", read_llama_cpp),
            Profile("lmdeploy", read_lmdeploy),
            Profile("ollama", read_ollama),
            Profile("deepseek", read_deepseek),
            Profile("kimi", read_kimi),
            Profile("xai", read_xai),
            Profile("minimax", read_minimax),
            Profile("anthropic", read_anthropic),
            Profile("bedrock", read_bedrock),
            Profile("gemini", read_gemini),
        )
    }
)


def read_usage(profile: Profile, payload: object, prompts: int = 1) -> UsageRead:
    """What a payload says; of a payload that is no object: nothing. `prompts`: how many the request had."""
    given: Payload = payload if type(payload) is dict or isinstance(payload, Mapping) else {}
    if profile.one_prompt and prompts > 1:
        return read_vllm(given, prompts)
    return profile.read(given)
