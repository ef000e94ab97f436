"""SGLang's radix trees, driven over one pipe. Runs in an interpreter that has SGLang and nothing of kvgate.

Started with the path of the sequences, answers each line `{"tree": "rust", "page": 16}` with one line of figures.
See `tests/engines/sglang_trees.sh` for that interpreter. What the trees import but never use (models, kernels,
the server) is stood in for, so that the environment holds PyTorch, SGLang and a few small packages.
"""

import argparse
import gc
import importlib.abc
import importlib.machinery
import json
import statistics
import sys
import time
import types
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

TREES = ("rust", "python")
# Packages, and parts of SGLang, that are imported on the way to the trees and have no part in them.
_UNUSED = (
    "IPython",
    "sgl_kernel",
    "torchvision",
    "transformers",
    "triton",
    "sglang.kernels",
    "sglang.srt.configs",
    "sglang.srt.constrained",
    "sglang.srt.disaggregation",
    "sglang.srt.entrypoints",
    "sglang.srt.layers",
    "sglang.srt.model_executor",
    "sglang.srt.models",
    "sglang.srt.observability",
    "sglang.srt.parser",
    "sglang.srt.sampling",
    "sglang.srt.server_args",
    "sglang.srt.utils.hf_transformers",
    "sglang.srt.utils.hf_transformers_patches",
)


class _AnyClass(type):
    def __getattr__(cls, name: str) -> Any:
        return _stand_in(name)


class _Anything:
    """Takes every call, attribute, index and base class; a decorator leaves what it decorates."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> Any:
        return _stand_in(name)

    def __getitem__(self, key: Any) -> Any:
        return self

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


class _Module(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - the import system looks for it

    def __getattr__(self, name: str) -> Any:
        return _stand_in(name)


def _stand_in(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _AnyClass(name, (), {}) if name[0].isupper() else _Anything()


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        unused = any(name == part or name.startswith(part + ".") for part in _UNUSED)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if unused else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def new_tree(kind: str, page: int) -> Any:
    """An empty tree for full attention, without pools: it holds token ids and slot numbers, as in a server."""
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.radix_cache import RadixCache
    from sglang.srt.mem_cache.unified_cache.components import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    params = CacheInitParams(
        disable=False,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        page_size=page,
        tree_components=(ComponentType.FULL,),
    )
    if kind == "python":
        return RadixCache(params)
    tree = UnifiedRadixCache(params)
    if type(tree.tree_core).__name__ != "RustUnifiedTreeCore":
        raise RuntimeError(f"SGLang chose {type(tree.tree_core).__name__}, not its Rust core")
    return tree


def measure(kind: str, page: int, sequences: Sequence["array[int]"]) -> dict[str, float]:
    """Match (with lock and slot numbers), insert and unlock each sequence, as a scheduler does.

    Keys and slot numbers are there before; the slots of what was matched are not freed, as they are the tree's.
    """
    import torch
    from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
    from sglang.srt.mem_cache.radix_cache import RadixKey

    tree = new_tree(kind, page)
    slots = torch.arange(max(map(len, sequences)))
    matches: list[float] = []
    gc.collect()
    clock, started = time.perf_counter, time.process_time()
    for tokens in sequences:
        before = clock()
        match = tree.match_prefix(MatchPrefixParams(key=RadixKey(tokens)))
        lock = tree.lock(match.last_device_node)
        held = tree.path_device_indices(match.last_device_node)
        matches.append(clock() - before)
        known = len(held)
        tree.insert(InsertParams(key=RadixKey(tokens), value=slots[: len(tokens)], prev_prefix_len=known))
        tree.unlock(lock)
    spent = time.process_time() - started
    return {
        "pairs_per_cpu_second": len(sequences) / spent,
        "match_p50": statistics.median(matches),
        "tokens": float(tree.evictable_size()),
    }


def main() -> None:
    """Answer until the pipe ends; or, with `--check`, prove that both trees work here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sequences", nargs="?", help="npz of int32 `tokens` and int64 `ends`")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    sys.meta_path.insert(0, _StandIns())
    import torch

    torch.set_num_threads(1)
    if options.check:
        _check()
        return
    with np.load(options.sequences) as held:
        parts = np.split(held["tokens"], held["ends"][:-1])
    sequences = [array("q", part.tolist()) for part in parts]
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(measure(asked["tree"], asked["page"], sequences)), flush=True)


def _check() -> None:
    sequences = [array("q", range(40)), array("q", [*range(20), *range(50, 70)])]
    for kind in TREES:
        held = measure(kind, 4, sequences)["tokens"]
        if held != 60:
            raise RuntimeError(f"SGLang's {kind} tree holds {held:.0f} tokens of 60")


if __name__ == "__main__":
    main()
