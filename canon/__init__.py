"""Rewrites requests so that their prefixes match, harming nothing, and explains every edit.

`canonicalize` works on one request, `lint` on a log of them; `ConversationMemory` lets later turns repeat what was
sent.
"""

from canon.canonicalize import canonicalize
from canon.lint import LintReport, lint
from canon.memory import ConversationMemory
from canon.policy import RULES, RULES_VERSION, Policy
from canon.results import CanonResult, Edit, Finding

__all__ = [
    "RULES",
    "RULES_VERSION",
    "CanonResult",
    "ConversationMemory",
    "Edit",
    "Finding",
    "LintReport",
    "Policy",
    "canonicalize",
    "lint",
]
