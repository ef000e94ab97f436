"""SGLang's radix trees in an interpreter of their own, which `tests/engines/sglang_trees.sh` makes."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_adapters.embedded.models import cache_dir

TREES = ("rust", "python")
HOW_TO_INSTALL = "run tests/engines/sglang_trees.sh"
INTERPRETER = "KVGATE_SGLANG_PYTHON"
_WORKER = Path(__file__).with_name("sglang_trees_worker.py")


@dataclass(frozen=True, slots=True)
class TreeFigures:
    """What one tree did with all sequences."""

    pairs_per_cpu_second: float  # of match, lock, slot numbers, insert, unlock
    match_p50: float  # seconds; lock and slot numbers included
    tokens: int  # it holds in the end


def interpreter(environ: Mapping[str, str]) -> Path | None:
    """The one KVGATE_SGLANG_PYTHON names, else the script's default; None: there is none."""
    named = environ.get(INTERPRETER)
    path = Path(named) if named else cache_dir(environ) / "sglang-trees" / "bin" / "python"
    return path if path.is_file() else None


class SglangTreesPeer:
    """Started by `with`; ended with it. `sequences`: an npz of int32 `tokens` and int64 `ends`."""

    name = "SGLang"

    def __init__(self, python: Path, sequences: Path) -> None:
        quiet = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [str(python), str(_WORKER), str(sequences)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=quiet | {"CUDA_VISIBLE_DEVICES": ""},
        )

    def __enter__(self) -> "SglangTreesPeer":
        try:
            self._answer()  # it has read the sequences
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def measure(self, tree: str, page: int) -> TreeFigures:
        """Put every sequence through a new tree with pages of `page` tokens."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"tree": tree, "page": page}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended; `_answer` says so
        seen = json.loads(self._answer())
        return TreeFigures(seen["pairs_per_cpu_second"], seen["match_p50"], int(seen["tokens"]))

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"SGLang's trees ended early; to see why: {HOW_TO_INSTALL}")
        return line
