"""Lets SGLang run where its GPU kernels have no build: stand-ins that import, and raise when they are called.

As a script, run by the interpreter SGLang is installed for, this puts itself where that interpreter loads it at every
start, child processes included. As a module it serves

- `sgl_kernel`, the package of GPU kernels: every name in it is there and raises `NotImplementedError` when called, so
  that nothing is computed wrongly in silence. SGLang takes its ways through plain PyTorch on a CPU instead.
- the operators `torchvision::nms` and `torchvision::qnms`, which torchvision describes to PyTorch while it is imported
  and which only its compiled part defines; that part belongs to another build of PyTorch.
"""

import importlib.abc
import importlib.machinery
import shutil
import sys
import sysconfig
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KERNELS = "sgl_kernel"
_OPERATORS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


class Absent:
    """A kernel, or a constant of one, that is not there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{self._name} needs a GPU: this is a stand-in for SGLang on a CPU")

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __or__(self, other: Any) -> Any:  # in annotations: `ScalarType | None`
        return Any

    __ror__ = __or__


class AbsentModule(types.ModuleType):
    """A module in which every public name is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class WithoutGpu(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves the kernels' modules, and defines torchvision's operators just before torchvision is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "torchvision":
            _define_operators()
        if fullname == KERNELS or fullname.startswith(f"{KERNELS}."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing runs: its names are made when they are asked for."""


def _define_operators() -> None:
    import torch

    for name, schema in _OPERATORS.items():
        if not torch._C._dispatch_has_kernel(name):
            torch.library.define(name, schema)


def _install() -> None:
    """Copy this file to the interpreter's packages, with a line that loads it at every start."""
    site = Path(sysconfig.get_paths()["purelib"])
    shutil.copyfile(__file__, site / "sglang_without_gpu.py")
    (site / "sglang_without_gpu.pth").write_text("import sglang_without_gpu\n")


if __name__ == "__main__":
    _install()
elif not any(type(finder).__name__ == WithoutGpu.__name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, WithoutGpu())
