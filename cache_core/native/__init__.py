"""Small C sources, built on first use with the compiler that is there; everything works without them."""

from cache_core.native.compiling import NativeBuildError, built_once, find_compiler, run_compiler
from cache_core.native.library import library_folder
from cache_core.native.lrfu import NativeState, load_lrfu
from cache_core.native.span_copy import Rows, SpanCopy, Spans, load_span_copy

__all__ = [
    "NativeBuildError",
    "NativeState",
    "Rows",
    "SpanCopy",
    "Spans",
    "built_once",
    "find_compiler",
    "library_folder",
    "load_lrfu",
    "load_span_copy",
    "run_compiler",
]
