"""What breaks the prefixes of a request log, priced."""

from canon.lint.linter import Linter, encoded_by, lint
from canon.lint.report import LintReport, RuleGain

__all__ = ["LintReport", "Linter", "RuleGain", "encoded_by", "lint"]
