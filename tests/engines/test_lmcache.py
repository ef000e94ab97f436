"""What vLLM gets from LMCache's server is a tier of its own: `store`."""

from pathlib import Path

import pytest

from engine_adapters.remote.vllm import VllmEngine
from tests.engines.asking import ask
from tests.engines.lmcache import lmcache, lmcache_server, with_lmcache
from tests.engines.running import running
from tests.engines.vllm_facts import KEPT, what_a_store_kept_is_a_tier_of_its_own
from tests.requirements import require_that

pytestmark = pytest.mark.engines


async def test_a_restarted_vllm_gets_prefixes_from_the_store(smollm2_folder: Path, tmp_path: Path) -> None:
    require_that(lmcache().exists(), "LMCache is not in place: tests/engines/lmcache.sh puts it beside vLLM")
    with lmcache_server(tmp_path) as port:
        command = with_lmcache(port)
        with running(command, smollm2_folder, tmp_path / "first.log") as url:
            engine = VllmEngine("first", url, probe=False)
            assert (await ask(engine, KEPT)).account.reuse.reused == 0
            await engine.aclose()
        with running(command, smollm2_folder, tmp_path / "second.log") as url:
            engine = VllmEngine("second", url, probe=False)
            await what_a_store_kept_is_a_tier_of_its_own(engine)
            await engine.aclose()
