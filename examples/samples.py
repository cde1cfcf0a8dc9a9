"""Training samples of a recording, their order, two ranks, and resuming: `python examples/samples.py`.

It trains nothing: it reads a batch and prints its shapes. Everything it writes goes to target/samples.
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
OUT = ROOT / "target/samples"
CAMERA = "obs/agentview_image"
BATCH = 16


def make_order(ds: kinograph.Dataset) -> kinograph.Order:
    """Two images, the joints at the same two times, and the next eight actions: a policy with a history."""
    samples = ds.samples(
        {
            CAMERA: [-0.05, 0.0],
            "obs/robot0_joint_pos": kinograph.Window(seconds=[-0.05, 0.0], resolve="linear"),
            "actions": range(8),
            "goal": kinograph.Window(stream=CAMERA, last=True),
        },
        anchor="actions",
    )
    return ds.order(samples, batch_size=BATCH, seed=7, last_batch="wrap")


def read_batch(order: kinograph.Order, batch: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Read samples one by one and stack them, as a collate function does."""
    samples = order.sources[0].samples
    read = [samples[index] for index in batch["sample"]]
    return {key: np.stack([sample[key] for sample in read]) for key in read[0]}


def take(order: kinograph.Order, steps: int, *, rank: int, world_size: int) -> list[list[int]]:
    """Take some steps, and return the indices of their samples."""
    batches = order.batches(rank=rank, world_size=world_size)
    return [batch["sample"].tolist() for batch in itertools.islice(batches, steps)]


def show_samples(order: kinograph.Order) -> None:
    """Show what one sample is."""
    samples = order.sources[0].samples
    print(samples)
    sample = samples[0]
    for key, value in sample.items():
        print(f"  {key:32} {value.dtype} {list(value.shape)}")
    print(f"  the first image is padding: {sample[CAMERA + '_is_pad'].tolist()}")
    print(f"  sample 100 is anchor {samples.locate(100)}, actions {samples.frames(100)['actions']}")


def show_ranks(order: kinograph.Order) -> None:
    """Show that two ranks share a batch."""
    print(f"\n{order}")
    print(f"  step 0        {order.batch(0)['sample'].tolist()}")
    for rank in range(2):
        mine = order.batch(0, rank=rank, world_size=2)
        print(f"  rank {rank} of 2   {mine['sample'].tolist()}")
    batch = read_batch(order, order.batch(0, rank=0, world_size=2))
    print(f"  read: {CAMERA} {batch[CAMERA].shape}, actions {batch['actions'].shape}")


def show_resume(ds: kinograph.Dataset) -> None:
    """Stop after five steps on two ranks, resume on four, and compare with a run that never stopped."""
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
        raise SystemExit("error: the resumed run saw other samples")
    print(f"\nStopped after 5 steps on 2 ranks, resumed on 4: the same {len(seen)} batches.")
    print(f"The state has {len(saved)} bytes.")


def main() -> None:
    """Pack, then show samples, order, ranks and resuming."""
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
