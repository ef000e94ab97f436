"""`native:` of an engine: which kinds have it, and what it needs."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engine_adapters.remote.sglang import SGLangEngine
from gateway.config.build import pool_of
from gateway.config.engines import SelfHosted
from gateway.sglang_native.engine import SGLangNativeEngine


def engine(**more: Any) -> SelfHosted:
    return SelfHosted(**({"kind": "sglang", "name": "e", "url": "http://127.0.0.1:30000"} | more))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"kind": "vllm", "tokenizer": Path("m")}, "only SGLang"),
        ({"kind": "llama_cpp", "tokenizer": Path("m")}, "only SGLang"),
        ({}, "write tokenizer"),
    ],
)
def test_what_cannot_work_is_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        engine(native=True, **more)


def test_every_replica_is_asked_natively_only_where_the_file_says_so(smollm2_folder: Path) -> None:
    urls = ["http://127.0.0.1:30000", "http://127.0.0.1:30001"]
    given = {"url": None, "replicas": urls, "tokenizer": smollm2_folder}
    pool = pool_of(engine(native=True, **given), "engines[0]", {})
    assert [type(each.engine) for each in pool.replicas] == [SGLangNativeEngine] * 2
    pool = pool_of(engine(**given), "engines[0]", {})
    assert [type(each.engine) for each in pool.replicas] == [SGLangEngine] * 2
