"""How many items do the drop-ins decode in a pass, with memory for a part of the images? ``python bench/drop_ins.py``.

    decoded        items of the third shuffled pass that are read from the dataset, of all items
    age            the same of a cache of episodes from which the one used longest ago goes, simulated on the same order
    possible       1 − the part that there is room for

Counted, not timed. 21 episodes: the sample recording, repeated. The drop-in for LeRobot keeps nothing, whatever the memory. Writes bench/results/drop_ins.csv.
"""

from __future__ import annotations

import collections
import csv
import pathlib
import random
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import kinograph
from kinograph import _robomimic_cache
from kinograph._samples import Samples
from kinograph.lerobot import LeRobotDataset
from kinograph.robomimic import SequenceDataset

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "data" / "lift_3demos.hdf5"
REPEATS, PASSES, STEPS = 7, 3, 10
CAMERA, FRAME_BYTES = "obs/agentview_image", 84 * 84 * 3


def pack() -> kinograph.Dataset:
    """Pack the recording repeatedly, as many demonstrations."""
    target = ROOT / "target" / "bench" / "drop_ins.kino"
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    for number in range(REPEATS):
        mode = "append" if number else "new"
        kinograph.pack(RECORDING, target, mode=mode, prefix=f"{number}/")
    return kinograph.open(target)


def decoded(items: Sequence[Any], order: Callable[[int], list[int]]) -> float:
    """Count the items of the last pass that are read from the dataset, by the calls of ``Samples``."""
    reads = 0
    plain = Samples.__getitem__

    def counted(samples: Samples, window: Any) -> Any:  # noqa: ANN401 (as it is there)
        nonlocal reads
        reads += 1
        return plain(samples, window)

    try:
        Samples.__getitem__ = counted  # type: ignore[method-assign]
        for number in range(PASSES):
            reads = 0
            for idx in order(number):
                items[idx]
    finally:
        Samples.__getitem__ = plain  # type: ignore[method-assign]
    return reads / len(items)


def by_age(
    places: list[tuple[int, int]], lengths: list[int], room: int, passes: list[list[int]]
) -> float:
    """Simulate a cache of episodes' frames from which the episode used longest ago goes."""
    kept: collections.OrderedDict[int, set[int]] = collections.OrderedDict()
    held = missed = 0
    for order in passes:
        missed = 0
        for idx in order:
            episode, anchor = places[idx]
            if episode not in kept:
                kept[episode] = set()
                held += lengths[episode]
            kept.move_to_end(episode)
            while held > room:
                held -= lengths[kept.popitem(last=False)[0]]
            frames = set(range(anchor, min(anchor + STEPS, lengths[episode])))
            found = kept.get(episode, set())
            missed += not frames <= found
            found |= frames
    return missed / len(places)


def measure(items: Any, room: int, lengths: list[int]) -> dict[str, float]:  # noqa: ANN401 (either drop-in)
    """Count what a drop-in decodes in the third pass, beside a cache that goes by age."""

    def order(number: int) -> list[int]:
        return random.Random(number).sample(range(len(items)), len(items))

    places = [items._samples.locate(idx) for idx in range(len(items))]
    passes = [order(number) for number in range(PASSES)]
    return {
        "decoded": round(decoded(items, order), 3),
        "age": round(by_age(places, lengths, room, passes), 3),
        "possible": round(max(0.0, 1 - room / sum(lengths)), 3),
    }


def main() -> None:
    """Measure both drop-ins with room for several parts of the images."""
    dataset = pack()
    lengths = [len(dataset[number][CAMERA]) for number in range(len(dataset))]
    rows = []
    for percent in (120, 80, 50, 30):
        room = sum(lengths) * percent // 100
        _robomimic_cache._IMAGE_BYTES = room * FRAME_BYTES
        robomimic = SequenceDataset(
            dataset,
            ["agentview_image"],
            dataset_keys=["actions"],
            frame_stack=1,
            seq_length=STEPS,
            hdf5_cache_mode="low_dim",
        )
        row = {"drop_in": "robomimic", "memory": percent / 100}
        rows.append(row | measure(robomimic, room, lengths))
        print(rows[-1], flush=True)
    lerobot = LeRobotDataset(dataset.path, delta_timestamps={"actions": [0.0, 0.05]})
    rows.append({"drop_in": "lerobot", "memory": 0.0} | measure(lerobot, 0, lengths))
    print(rows[-1])
    with (ROOT / "bench" / "results" / "drop_ins.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
