"""Prompt tokens need no model library."""

import subprocess
import sys


def test_neither_torch_nor_transformers_is_imported() -> None:
    code = "import sys, canon.tokens; print([m for m in ('torch', 'transformers', 'gateway') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
