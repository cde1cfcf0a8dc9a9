"""Whole shards, read by the second reader: the worked example of the specification, and what the library writes today."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from spec import golden, shard

# The golden pages can be read without the library; these tests need the built library.
kinograph = pytest.importorskip("kinograph")

FRAMES = 60
TINY = golden.FOLDER.parents[2] / "kino_format/tests/golden/v1_tiny.kshard"


def decode(run):
    codec = importlib.import_module(f"spec.{run.name}")
    pages = [codec.decode(run.frame, run.params, run.shared, page) for page in run.pages]
    return np.concatenate(pages)


def surfaces(dtype):
    """Images with few distinct values, edges and a moving object."""
    rng = np.random.default_rng(0)
    images = np.repeat(rng.integers(0, 200, (1, 5, 4)), FRAMES, axis=0)
    images = images.repeat(5, axis=1).repeat(6, axis=2)
    for idx in range(1, FRAMES):
        images[idx] = np.roll(images[idx], idx // 4, axis=1)
    return (images + rng.integers(0, 2, images.shape)).astype(dtype)


def joints(dtype):
    """Columns that are smooth, rounded, held, noisy, constant, and a copy."""
    seconds = np.arange(FRAMES) / 30
    smooth, noise = np.sin(seconds), np.random.default_rng(1).normal(size=FRAMES)
    held = np.repeat(noise[: FRAMES // 5], 5)
    columns = [smooth, smooth.round(2), held, noise, np.ones(FRAMES), smooth, -held]
    numbers = np.stack(columns, axis=1) * 100
    # Integers through int64, so that unsigned ones wrap.
    return (numbers if np.issubdtype(dtype, np.floating) else numbers.astype(int)).astype(dtype)


def test_the_shard_that_the_specification_lists_is_read():
    (episode,) = shard.read_episodes(TINY.read_bytes())
    assert decode(episode["joints"]).tolist() == [[0.0, 1.0], [0.5, 1.5], [-2.0, 3.25]]


@pytest.mark.parametrize(
    ("codec", "frames"),
    [
        ("raw", joints(np.uint16)),
        ("zstd", joints(np.int16)),
        ("zstd:shuffle=8", joints(np.float64)),
        ("pco", joints(np.float16)),
        ("vector", joints(np.int8)),
        ("vector", joints(np.uint64)),
        ("vector", joints(np.float16)),
        ("vector", joints(np.float32)),
        ("vector", joints(np.float32).astype(np.float64)),
        ("predict", surfaces(np.uint8)),
        ("camera", surfaces(np.uint8)),
        ("camera", np.stack([surfaces(np.uint8) + green for green in (0, 5, 40)], axis=-1)),
        ("depth", surfaces(np.uint16)),
        ("depth", surfaces(np.float16)),
        ("depth", surfaces(np.float32) * 1.001 ** np.arange(24)),
    ],
    ids=lambda value: f"{value.dtype}" if isinstance(value, np.ndarray) else value,
)
def test_what_the_library_writes_is_read_bit_for_bit(tmp_path, codec, frames):
    texts = [f"part {idx // 7}" for idx in range(FRAMES)]
    plan = {"stream": [{"match": "obs/x", "codec": codec}]}
    with kinograph.Writer(tmp_path / "d.kino", plan=plan) as writer:
        writer.add_episode({"obs/x": frames, "task": texts}, rate_hz=30.0)
    (path,) = (tmp_path / "d.kino/shards").iterdir()
    (episode,) = shard.read_episodes(path.read_bytes())
    assert episode["obs/x"].name == codec.split(":")[0]
    assert decode(episode["obs/x"]).tobytes() == frames.tobytes()
    assert decode(episode["task"]).tolist() == texts
