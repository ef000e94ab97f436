"""What the Triton tests run in a process of its own: the interpreter is chosen when triton is imported."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from engine_adapters.embedded.attention.segment import Segment
from engine_adapters.embedded.attention.self_check import Features, Shape, Sharing, difference
from tests.engine_adapters.embedded import reference_models


def backend_difference(
    shape: Shape, batch: Sequence[Sharing], features: Features, min_keys: int = 256
) -> float:
    """max|difference| / max|output| of the Triton backend to the reference."""
    from engine_adapters.embedded.attention.triton_backend import TritonBackend

    backend = TritonBackend(min_keys=min_keys)
    return difference(backend, shape, batch, features, torch.device("cpu"))


def model_difference(architecture: str) -> float:
    """Largest difference of decoded logits to Transformers' own, for two sequences with a shared prefix."""
    from engine_adapters.embedded.attention.triton_backend import TritonBackend

    case = reference_models.Case(architecture, TritonBackend(min_keys=64))
    shared = 160
    prompts = [reference_models.prompt(200), reference_models.prompt(190)]
    first = case.take(200)
    case.prefill(prompts[0][:-2], first)
    second = np.concatenate([first[: shared // reference_models.BLOCK], case.take(30)])
    case.prefill(prompts[1][:-1], second, past=shared)
    segments = [Segment(prompts[0][-2:], 198, first, True), Segment(prompts[1][-1:], 189, second, True)]
    ours = case.runner.forward(segments)
    theirs = torch.stack([case.uncached(prompt)[-1] for prompt in prompts])
    return reference_models.difference(ours, theirs)


def compiled_sizes(capability: int) -> list[int]:
    """Bytes of machine code of each kernel in bfloat16, for NVIDIA's architecture of this number."""
    import triton.language as tl

    from engine_adapters.embedded.attention.triton_kernels import attend_parts, merge_parts

    tile = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "BLOCK_V": 64}
    attend = {"GROUP": 3, "KEY_DIM": 64, "VALUE_DIM": 64, "PAGE": 16, **tile, "DOT": tl.bfloat16}
    pools = dict.fromkeys(("query", "keys", "values", "target"), "*bf16")
    merge = {"VALUE_DIM": 64, "BLOCK_V": 64, "SINKS": True}
    return [
        _compiled_size(attend_parts, attend, pools, capability),
        _compiled_size(merge_parts, merge, pools, capability),
    ]


_ARGUMENTS = {
    **dict.fromkeys(("tables", "items", "entries", "merges"), "*i32"),
    **dict.fromkeys(("outputs", "totals", "sinks"), "*fp32"),
    **dict.fromkeys(("scaling", "softcap"), "fp32"),
}


def _compiled_size(kernel: Any, constants: dict[str, Any], pools: dict[str, str], capability: int) -> int:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {**dict.fromkeys(constants, "constexpr"), **pools, **_ARGUMENTS}
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs={(k,): v for k, v in _by_place(kernel, constants)})
    return len(triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"])


def _by_place(kernel: Any, constants: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    return ((kernel.arg_names.index(name), value) for name, value in constants.items())
