"""From what a request asks its answer to look like, to one grammar matcher a choice."""

import asyncio

from engine_adapters.base import GenerateRequest, GrammarSpec
from engine_adapters.embedded.model_family import ModelFamily, forces_call
from engine_adapters.embedded.sampling import GrammarCompiler, GrammarMatcher


class RequestGrammars:
    """Compiles off the event loop; equal grammars come from the compiler's memory."""

    def __init__(self, compiler: GrammarCompiler, family: ModelFamily) -> None:
        self._compiler = compiler
        self._family = family

    async def compile(self, request: GenerateRequest) -> list[GrammarMatcher | None]:
        """One matcher a choice, or None where the text is free.

        Raises:
            InvalidRequestError: a schema that is invalid or cannot be followed.
        """
        choices = request.sampling.n
        if request.sampling.grammar is None and not forces_call(request.tools):
            return [None] * choices
        return await asyncio.to_thread(lambda: [self._matcher(request) for _ in range(choices)])

    def _matcher(self, request: GenerateRequest) -> GrammarMatcher | None:
        if request.tools is not None and (calls := self._family.tool_grammar(request.tools)) is not None:
            return self._compiler.compile_lark(self._family.behind_thinking(request, calls) or calls)
        spec = request.sampling.grammar
        if spec is None:
            return None
        thinking = self._family.behind_thinking(request, _json_lark(spec))
        if thinking is None:
            return self._compiler.compile(spec)
        return self._compiler.compile_lark(thinking, param="response_format.json_schema.schema")


def _json_lark(spec: GrammarSpec) -> str:
    """Lark whose only rule is the JSON that `spec` wants."""
    return "start: %json " + (spec.schema or '{"type": "object"}')
