"""A cache changes how long logits take, never what they are."""

import numpy as np
import pytest
import torch

from engine_adapters.embedded.attention import AttentionBackend, NativeBackend, TorchBackend
from engine_adapters.embedded.model_runner import Segment
from engine_adapters.embedded.native import load_native
from tests.engine_adapters.embedded.reference_models import ARCHITECTURES, BLOCK, Case, difference, prompt
from tests.requirements import require_that

TOLERANCE = 1e-4


@pytest.fixture(params=["native", "torch"], scope="module")
def backend(request: pytest.FixtureRequest) -> AttentionBackend:
    if request.param == "torch":
        return TorchBackend()
    library = load_native()
    require_that(library is not None, "the native kernels are missing: install a C++ compiler")
    assert library is not None
    return NativeBackend(library)


@pytest.fixture(params=sorted(ARCHITECTURES), scope="module")
def case(request: pytest.FixtureRequest, backend: AttentionBackend) -> Case:
    return Case(request.param, backend)


@pytest.fixture(autouse=True)
def _fresh_blocks(request: pytest.FixtureRequest) -> None:
    if "case" in request.fixturenames:
        request.getfixturevalue("case").forget()


def test_a_cold_prompt_gives_transformers_own_logits(case: Case) -> None:
    tokens = prompt(300)
    assert difference(case.prefill(tokens, case.take(300)), case.uncached(tokens)) <= TOLERANCE


@pytest.mark.parametrize("reused", [0, BLOCK, 7 * BLOCK, 12 * BLOCK + 5, 299])
def test_logits_are_the_same_at_every_reuse_length(case: Case, reused: int) -> None:
    tokens = prompt(300)
    first = case.take(300)
    case.prefill(tokens, first)
    whole = reused // BLOCK
    blocks = np.concatenate([first[:whole], case.take(300 - whole * BLOCK)])
    if reused % BLOCK:
        case.runner.kv.copy_blocks(first[whole : whole + 1], blocks[whole : whole + 1])
    expected = case.uncached(tokens)[reused:]
    assert difference(case.prefill(tokens, blocks, past=reused), expected) <= TOLERANCE


def test_a_prefix_is_reused_by_another_continuation(case: Case) -> None:
    shared, tail = prompt(160), prompt(45, seed=9)
    first = case.take(300)
    case.prefill(prompt(300), first)
    tokens = np.concatenate([shared, tail])
    blocks = np.concatenate([first[:10], case.take(45)])
    assert difference(case.prefill(tokens, blocks, past=160), case.uncached(tokens)[160:]) <= TOLERANCE


def test_chunks_give_what_one_pass_gives(case: Case) -> None:
    tokens, blocks = prompt(300), case.take(300)
    parts, past = [], 0
    for size in (100, 64, 1, 33, 102):
        parts.append(case.prefill(tokens[: past + size], blocks, past=past))
        past += size
    assert difference(torch.cat(parts), case.uncached(tokens)) <= TOLERANCE


def test_prefills_and_decodes_mix_in_one_step(case: Case) -> None:
    texts = [prompt(300), prompt(77, 1), prompt(200, 2), prompt(150, 3)]
    pasts = [200, 0, 199, 149]
    tables = [case.take(len(text)) for text in texts]
    for text, past, table in zip(texts, pasts, tables, strict=True):
        if past:
            case.prefill(text[:past], table)
    logits = case.runner.forward(
        [
            Segment(text[past:], past, table, sample=i != 1)
            for i, (text, past, table) in enumerate(zip(texts, pasts, tables, strict=True))
        ]
    )
    expected = torch.stack([case.uncached(texts[i])[-1] for i in (0, 2, 3)])
    assert difference(logits, expected) <= TOLERANCE


def test_streams_over_shared_prefixes_decode_together(case: Case) -> None:
    """Two groups, one nested in the other, and one stream that shares nothing."""
    base, other = prompt(160), prompt(144, 5)
    base_blocks, other_blocks = case.take(160), case.take(144)
    case.prefill(base, base_blocks)
    case.prefill(other, other_blocks)
    longer = np.concatenate([base, prompt(128, 6)])
    longer_blocks = np.concatenate([base_blocks, case.take(128)])
    case.prefill(longer, longer_blocks, past=160)
    prefixes = [(base, base_blocks)] * 2 + [(longer, longer_blocks)] * 2 + [(other, other_blocks)] * 2
    prefixes.append((prompt(0), np.zeros(0, dtype=np.int32)))
    texts, segments = [], []
    for i, (prefix, blocks) in enumerate(prefixes):
        tail = prompt(3 + 11 * i, 20 + i)
        text = np.concatenate([prefix, tail])
        table = np.concatenate([blocks, case.take(len(tail) + 4)])
        new = 1 if i % 2 else 2
        case.prefill(text[:-new], table, past=len(prefix))
        texts.append(text)
        segments.append(Segment(text[-new:], len(text) - new, table, sample=True))
    expected = torch.stack([case.uncached(text)[-1] for text in texts])
    assert difference(case.runner.forward(segments), expected) <= TOLERANCE


def test_a_step_without_samples_gives_no_rows(case: Case) -> None:
    logits = case.runner.forward([Segment(prompt(20), 0, case.take(20), sample=False)])
    assert logits.shape == (0, case.runner.vocab_size)


class LayerByLayer:
    """Brings a layer's keys and values only when that layer waits for them; those of one do not come."""

    def __init__(self, case: Case, source: np.ndarray, target: np.ndarray, lost: int | None = None) -> None:
        kv = case.runner.kv
        self._kv, self._target, self._lost = kv, target, lost
        self._bytes = torch.empty((len(source), kv.bytes_per_block), dtype=torch.uint8)
        kv.read_blocks(source, self._bytes)
        self.waited: list[int] = []

    def wait_layer(self, layer: int) -> bool:
        self.waited.append(layer)
        if layer == self._lost:
            return False
        self._kv.write_blocks(self._target, self._bytes, layers=range(layer, layer + 1))
        return True


def test_a_layer_waits_for_its_own_bytes_before_it_reads_them(case: Case) -> None:
    tokens, first = prompt(300), case.take(300)
    case.prefill(tokens, first)
    blocks = case.take(300)
    arrival = LayerByLayer(case, first[:18], blocks[:18])
    logits = case.runner.forward_all(Segment(tokens[288:], 288, blocks, sample=True, arrival=arrival))
    assert arrival.waited == [0, 1, 2]
    assert difference(logits, case.uncached(tokens)[288:]) <= TOLERANCE


def test_bytes_that_do_not_come_spoil_no_other_segment(case: Case) -> None:
    tokens, first = prompt(300), case.take(300)
    case.prefill(tokens, first)
    blocks, other = case.take(300), prompt(150, 3)
    table = case.take(150)
    case.prefill(other[:149], table)
    for pool in (*case.runner.kv.keys, *case.runner.kv.values):
        case.runner.kv._by_block(pool)[:, torch.from_numpy(blocks.astype(np.int64))] = float("nan")
    arrival = LayerByLayer(case, first[:18], blocks[:18], lost=1)
    logits = case.runner.forward(
        [
            Segment(tokens[288:], 288, blocks, sample=True, arrival=arrival),
            Segment(other[149:], 149, table, sample=True),
        ]
    )
    assert arrival.waited == [0, 1]
    assert difference(logits[1], case.uncached(other)[-1]) <= TOLERANCE
