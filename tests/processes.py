"""Python in a process of its own, for what must be killed, or must import anew."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def run_python(code: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `code` with `args` in sys.argv and `environ` added to the environment; wait for its end."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        env=os.environ | {"PYTHONPATH": os.getcwd()} | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def lives(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone before the file was opened, or behind that
        return False
    return state != "Z"
