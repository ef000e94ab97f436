"""What a restarted process of a server begins with while the file is broken: what its siblings go on with."""

import stat
from pathlib import Path

from gateway.config.effective import digest
from gateway.config.load import check_config
from gateway.reload.last_good import LastGood

ENGINE = {"name": "a", "kind": "vllm", "url": "http://127.0.0.1:1"}


def test_what_was_kept_is_the_same_and_nobody_else_reads_it(tmp_path: Path) -> None:
    local = {
        "kind": "sglang_process",
        "python": "/p",
        "model": "/m",
        "arguments": {"api_key": "sk", "tp_size": 2},
    }
    config = check_config({"engines": [ENGINE, local], "usage": "full", "limits": {"concurrency": None}})
    LastGood(tmp_path / "c.json").keep(config)
    found = LastGood(tmp_path / "c.json").load()
    assert found == config
    assert digest(found) == digest(config)
    assert found.limits.model_fields_set == config.limits.model_fields_set
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "c.json"]


def test_what_is_not_there_or_not_whole_is_none(tmp_path: Path) -> None:
    assert LastGood(tmp_path / "c.json").load() is None
    (tmp_path / "c.json").write_text('{"engines": [')
    assert LastGood(tmp_path / "c.json").load() is None
    LastGood(tmp_path / "no" / "folder.json").keep(check_config({"engines": [ENGINE]}))  # said, not raised
