"""Our 8-bit floats are PyTorch's, bit for bit."""

import numpy as np
import torch

from cache_core.tiers.float8 import LARGEST, from_float8, to_float8


def test_every_code_means_what_it_means_to_pytorch() -> None:
    codes = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(codes).view(torch.float8_e4m3fn).to(torch.float32).numpy()
    np.testing.assert_array_equal(from_float8(codes), theirs)


def test_every_value_between_two_codes_goes_to_the_one_pytorch_takes() -> None:
    exact = from_float8(np.arange(127, dtype=np.uint8))
    middles = (exact[1:] + exact[:-1]) / 2
    near = [exact, middles, np.nextafter(middles, 0), np.nextafter(middles, np.inf, dtype=np.float32)]
    dice = np.random.default_rng(0)
    drawn = (
        dice.uniform(-LARGEST, LARGEST, 10_000),
        dice.standard_normal(10_000) * 2.0 ** dice.integers(-20, 8, 10_000),
    )
    values = np.concatenate([*near, *drawn, [0.0, -0.0, 1e-44]]).astype(np.float32)
    values = np.concatenate([values, -values])
    values = values[np.abs(values) <= LARGEST]
    theirs = torch.from_numpy(values).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    np.testing.assert_array_equal(to_float8(values), theirs)


def test_what_is_over_the_largest_becomes_the_largest() -> None:
    assert from_float8(to_float8(np.array([449, 1e30, -1e30], dtype=np.float32))).tolist() == [448, 448, -448]
