"""One small C function, built on first use with the compiler that is there; everything works without it."""

from cache_core.native.span_copy import NativeBuildError, SpanCopy, load_span_copy

__all__ = ["NativeBuildError", "SpanCopy", "load_span_copy"]
