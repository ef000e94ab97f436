import gzip
from pathlib import Path

import numpy as np
import pytest

from bench.sim.trace import Trace, TraceError, read_trace
from tests.bench.sim.slices import CODING_AGENT


def test_a_trace_is_read_in_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 5, "hash_ids": [70, 9]}\n\n{"timestamp": 2, "hash_ids": [70]}\n')
    assert [ids.tolist() for ids in read_trace(path).requests] == [[0], [0, 1]]


def test_a_gzipped_trace_is_read() -> None:
    trace = read_trace(CODING_AGENT)
    assert (len(trace.requests), trace.blocks) == (200, 28943)


@pytest.mark.parametrize(
    "content",
    ["{", '{"timestamp": 1}', '{"hash_ids": 3}', "[]", '{"hash_ids": ["x"]}', "", '{"hash_ids": []}'],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(TraceError, match=r"t\.jsonl"):
        read_trace(path)


def test_a_broken_or_missing_file_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "t.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"hash_ids": [1]}')[:-9])
    for path in (broken, tmp_path / "missing.jsonl"):
        with pytest.raises(TraceError, match="cannot be read"):
            read_trace(path)


def test_smaller_and_larger_blocks_keep_what_is_shared() -> None:
    trace = Trace("t", [np.array([0, 1, 2], dtype=np.int32), np.array([0, 1, 3, 4], dtype=np.int32)])
    assert trace.reblocked(512) is trace
    smaller = [ids.tolist() for ids in trace.reblocked(256).requests]
    assert smaller == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 6, 7, 8, 9]]
    assert [ids.tolist() for ids in trace.reblocked(1024).requests] == [[1], [1, 4]]
    with pytest.raises(TraceError, match="500"):
        trace.reblocked(500)
