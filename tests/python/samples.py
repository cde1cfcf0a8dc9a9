"""Datasets for tests, and the arrays they are written from."""

import numpy as np

import kinograph

DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
]


def numbers(dtype, shape, seed=0):
    """Random values, and the extremes of their dtype."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        array = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        special = [info.min, info.max, 0]
    else:
        array = rng.normal(size=shape).astype(dtype)
        special = [np.nan, -np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).smallest_subnormal]
    flat = array.reshape(-1)
    flat[: len(special)] = special[: len(flat)]
    return array


def image(frames, height=48, width=64, channels=3, seed=0):
    """A textured image that moves."""
    rng = np.random.default_rng(seed)
    texture = rng.integers(0, 256, (height, width + frames, channels), dtype=np.uint8)
    return np.stack([texture[:, step : step + width] for step in range(frames)])


def lift_like(frames=60, seed=0):
    """Streams like robomimic's, in the order in which they are stored."""
    rng = np.random.default_rng(seed)
    return {
        "actions": rng.normal(size=(frames, 7)),
        "dones": (np.arange(frames) == frames - 1).astype(np.int64),
        "obs/joints": np.cumsum(rng.normal(size=(frames, 7)), axis=0).astype(np.float32),
        "rewards": np.linspace(0, 1, frames),
        "language": [f"step {step // 10}" for step in range(frames)],
        "obs/agentview_image": image(frames, seed=seed),
    }


def write(path, episodes, **options):
    """Write episodes at 20 Hz and open the dataset."""
    with kinograph.Writer(path, **options) as writer:
        for number, streams in enumerate(episodes):
            writer.add_episode(streams, rate_hz=20.0, id=f"demo_{number}")
    return kinograph.open(path)


def same_bits(found, expected):
    """Whether two arrays have the same dtype, shape and bits (NaN equals itself)."""
    return (
        found.dtype == expected.dtype
        and found.shape == expected.shape
        and found.tobytes() == expected.tobytes()
    )


def batches(place, epochs=1, **options):
    """All batches of some epochs, as bytes."""
    windows = {"camera": [0], "actions": [0, 1]}
    dataset = kinograph.open(place, **options)
    with kinograph.numpy.Loader(dataset, windows=windows, batch_size=32, seed=3) as loader:
        return [
            {name: np.asarray(value).tobytes() for name, value in batch.items()}
            for _ in range(epochs)
            for batch in loader
        ]


def write_numbered(place, ids, **options):
    """Write episodes whose ids and values are numbers."""
    with kinograph.Writer(place, **options) as writer:
        for number in ids:
            joints = np.full((20, 3), number, np.float32)
            writer.add_episode({"joints": joints}, rate_hz=20.0, id=f"e{number}")
