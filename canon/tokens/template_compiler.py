"""Chat templates compiled to Python, with calls of ours where Jinja would go a longer way."""

from collections.abc import Iterator

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame


class TemplateCompiler(CodeGenerator):
    """Writes a sum of several terms, which most of a template is, as one call, and own functions as plain calls."""

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802  as in jinja2
        self.write("environment.added(context, ")
        self._arguments(list(_terms(node)), frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802
        own = node.node
        if not isinstance(own, nodes.EnvironmentAttribute):
            super().visit_Call(node, frame, forward_caller=forward_caller)
            return
        self.write(f"environment.{own.name}(")
        self._arguments(node.args, frame)

    def _arguments(self, given: list[nodes.Expr], frame: Frame) -> None:
        for each in given:
            self.visit(each, frame)
            self.write(", ")
        self.write(")")


def _terms(node: nodes.Expr) -> Iterator[nodes.Expr]:
    """Of `a + b + c`, from left to right; what stands in brackets behind a plus is one term."""
    if isinstance(node, nodes.Add):
        yield from _terms(node.left)
        yield node.right
    else:
        yield node
