"""Coverage-guided fuzzing of `canonicalize`, for those who have atheris (`pip install atheris`).

    PYTHONPATH=. python tests/canon/fuzz/fuzz_canonicalize.py tests/canon/fuzz/corpus -max_total_time=60

What it finds goes into the corpus, which the tests replay.
"""

import sys

import atheris

with atheris.instrument_imports(include=["canon"]):
    from tests.canon.fuzz.oracle import check, request_of


def one_input(data: bytes) -> None:
    check(request_of(data))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
