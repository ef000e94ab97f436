"""C++ kernels for float32 on a CPU, built on first use with the compiler that is there."""

from cache_core.native import NativeBuildError
from engine_adapters.embedded.native.build import build
from engine_adapters.embedded.native.library import AttentionCall, NativeLibrary, load_native

__all__ = ["AttentionCall", "NativeBuildError", "NativeLibrary", "build", "load_native"]
