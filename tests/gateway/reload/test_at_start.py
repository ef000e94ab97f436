"""What has no effect before the next start is named by its key, and every key is one or the other."""

from typing import Any

import pytest

from gateway.config.load import check_config
from gateway.config.model import Config
from gateway.reload.at_start import AT_START, RELOADED, waiting_keys

REMOTE = {"name": "a", "kind": "vllm", "url": "http://127.0.0.1:1"}
LOCAL = {"kind": "embedded", "model": "/m"}


def config(**keys: Any) -> Config:
    return check_config({"engines": [REMOTE], **keys})


def test_every_key_of_the_file_counts_at_one_time() -> None:
    assert set(Config.model_fields) == RELOADED | AT_START
    assert not RELOADED & AT_START


@pytest.mark.parametrize(
    ("before", "after", "waiting"),
    [
        ({}, {"usage": "full", "canon_policy": "off", "max_body_mib": 1}, ()),
        ({}, {"engines": [{**REMOTE, "url": "http://127.0.0.1:2"}]}, ()),
        ({}, {"server": {"port": 1, "grace_s": 3}}, ("server.grace_s", "server.port")),
        ({"ledger": {"url": "off"}}, {}, ("ledger.url",)),
        ({}, {"capture": {"folder": "/x"}}, ("capture",)),
        ({}, {"engines": [REMOTE, LOCAL]}, ("engines[embedded]",)),
        ({"engines": [REMOTE, LOCAL]}, {}, ("engines[embedded]",)),
        (
            {"engines": [LOCAL]},
            {"engines": [REMOTE, {**LOCAL, "block_size": 32}]},
            ("engines[embedded].block_size",),
        ),
        ({"engines": [LOCAL]}, {"engines": [REMOTE, LOCAL]}, ()),
    ],
)
def test_waiting_keys_are_named(
    before: dict[str, Any], after: dict[str, Any], waiting: tuple[str, ...]
) -> None:
    assert waiting_keys(config(**before), config(**after)) == waiting
