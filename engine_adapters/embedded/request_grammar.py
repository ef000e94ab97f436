"""From what a request asks its answer to look like, to one grammar matcher a choice."""

import asyncio

from engine_adapters.base import GenerateRequest
from engine_adapters.embedded.model_family import ModelFamily, forces_call
from engine_adapters.embedded.sampling import GrammarCompiler, GrammarMatcher
from engine_adapters.embedded.sampling.grammar import SCHEMA_PARAM, json_lark


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
        plain = self._compiler.compile(
            spec
        )  # refuses what cannot be followed, which Lark below takes leniently
        calls = self._family.possible_calls(request.tools)
        answer = json_lark(spec) if calls is None else _either(json_lark(spec), calls)
        thinking = self._family.behind_thinking(request, answer)
        if calls is None and thinking is None:
            return plain
        return self._compiler.compile_lark(thinking or answer, param=SCHEMA_PARAM)


def _either(text: str, calls: str) -> str:
    """Lark for an answer that is one of two, each of which is Lark whose first rule is `start`."""
    return "\n".join(["start: text | calls", _renamed(text, "text"), _renamed(calls, "calls")])


def _renamed(grammar: str, rule: str) -> str:
    return f"{rule}:" + grammar.removeprefix("start:")
