"""Training samples of a recording, the order in which they come, two ranks, and a stop in between.

Trains nothing: a "batch" is read and its shapes are shown. Everything it writes goes to target/windows.

    python examples/windows.py
"""

import itertools
import json
import pathlib
import shutil
from typing import Any

import numpy as np

import kinograph

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests/data/lift_3demos.hdf5"
OUT = ROOT / "target/windows"
CAMERA = "obs/agentview_image"
BATCH = 16


def make_order(ds: kinograph.Dataset) -> kinograph.Order:
    """Two pictures, the joints at the same two moments, and the next eight actions: a policy with a history."""
    windows = ds.windows(
        {
            CAMERA: [-0.05, 0.0],
            "obs/robot0_joint_pos": kinograph.Window(seconds=[-0.05, 0.0], resolve="linear"),
            "actions": range(8),
            "goal": kinograph.Window(stream=CAMERA, last=True),
        },
        anchor="actions",
    )
    return ds.order(windows, batch_size=BATCH, seed=7)


def read_batch(order: kinograph.Order, samples: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Read samples one by one and stack them, as a collate function does."""
    windows = order.sources[0].windows
    read = [windows[number] for number in samples["window"]]
    return {key: np.stack([sample[key] for sample in read]) for key in read[0]}


def take(order: kinograph.Order, steps: int, *, rank: int, world_size: int) -> list[list[int]]:
    """Go on for some steps, and tell which windows came."""
    batches = order.batches(rank=rank, world_size=world_size)
    return [batch["window"].tolist() for batch in itertools.islice(batches, steps)]


def show_samples(order: kinograph.Order) -> None:
    """Show what one sample is."""
    windows = order.sources[0].windows
    print(windows)
    sample = windows[0]
    for key, value in sample.items():
        print(f"  {key:32} {value.dtype} {list(value.shape)}")
    print(f"  the first picture is padding: {sample[CAMERA + '_is_pad'].tolist()}")
    print(f"  sample 100 is anchor {windows.locate(100)}, actions {windows.frames(100)['actions']}")


def show_ranks(order: kinograph.Order) -> None:
    """Show that two ranks share a batch."""
    print(f"\n{order}")
    print(f"  step 0        {order.batch(0)['window'].tolist()}")
    for rank in range(2):
        mine = order.batch(0, rank=rank, world_size=2)
        print(f"  rank {rank} of 2   {mine['window'].tolist()}")
    batch = read_batch(order, order.batch(0, rank=0, world_size=2))
    print(f"  read: {CAMERA} {batch[CAMERA].shape}, actions {batch['actions'].shape}")


def show_resume(ds: kinograph.Dataset) -> None:
    """Stop after five steps on two ranks, go on with four, and compare with a run that never stopped."""
    expected = take(make_order(ds), 12, rank=0, world_size=1)

    before = [make_order(ds) for _ in range(2)]
    parts = [take(order, 5, rank=rank, world_size=2) for rank, order in enumerate(before)]
    seen = [list(itertools.chain(*step)) for step in zip(*parts, strict=True)]
    saved = json.dumps(before[0].state_dict())

    after = [make_order(ds) for _ in range(4)]
    for order in after:
        order.load_state_dict(json.loads(saved))
    parts = [take(order, 7, rank=rank, world_size=4) for rank, order in enumerate(after)]
    seen += [list(itertools.chain(*step)) for step in zip(*parts, strict=True)]

    if seen != expected:
        raise SystemExit("error: the run that was stopped saw other samples")
    print(f"\nStopped after 5 steps on 2 ranks, went on with 4: the same {len(seen)} batches.")
    print(f"The state has {len(saved)} bytes.")


def main() -> None:
    """Pack, then show samples, order, ranks and a restart."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    kinograph.pack(RECORDING, OUT / "lift.kino")
    ds = kinograph.open(OUT / "lift.kino")
    order = make_order(ds)
    show_samples(order)
    show_ranks(order)
    show_resume(ds)


if __name__ == "__main__":
    main()
