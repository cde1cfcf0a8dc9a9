"""Losses that are planted in real recordings: `python bench/signal/planted.py pusht.kino lift.kino`.

The probe must see a blurred contact region, a gripper that is rounded to 3 bits, swapped color channels and a frozen camera, and must
not flag a lossless codec in any of 20 runs with other seeds, folds and episodes. A row per planted loss and contrast, and one per
lossless run.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
from typing import Any

import numpy as np
import numpy.typing as npt

import kinograph

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
FIELDS = ["recording", "loss", "contrast", "target", "increase", "low", "high", "verdict"]
RUNS = 20
LOSSLESS = ("predict", "camera", "zstd", "raw")
Frames = npt.NDArray[np.uint8]


def blur_contact(frames: Frames) -> Frames:
    """Reduce PushT's block, and what touches it, to a quarter of its sides and back."""
    out = frames.copy()
    block = np.abs(frames.astype(int) - (119, 136, 153)).sum(axis=-1) < 60
    for image, is_block in zip(out, block, strict=True):
        rows, columns = np.nonzero(is_block)
        if not rows.size:
            continue
        top, bottom = max(rows.min() - 6, 0) // 4 * 4, min(rows.max() + 10, 96) // 4 * 4
        left, right = max(columns.min() - 6, 0) // 4 * 4, min(columns.max() + 10, 96) // 4 * 4
        part = image[top:bottom, left:right].astype(float)
        small = part.reshape(part.shape[0] // 4, 4, part.shape[1] // 4, 4, 3).mean(axis=(1, 3))
        image[top:bottom, left:right] = small.repeat(4, axis=0).repeat(4, axis=1).round()
    return out


def swap(frames: Frames) -> Frames:
    """Swap red and blue."""
    return frames[..., ::-1].copy()


def freeze(frames: Frames) -> Frames:
    """Repeat the first frame of a run."""
    return np.broadcast_to(frames[:1], frames.shape).copy()


def round_gripper(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Round every element to eight levels of its range."""
    low, high = values.min(axis=0), values.max(axis=0)
    step = np.maximum(high - low, 1e-9) / 7
    return (low + np.round((values - low) / step) * step).astype(values.dtype)


def rows_of(recording: str, found: kinograph.Probed) -> list[dict[str, object]]:
    """Give the outcomes of all candidates, everywhere."""
    rows = []
    for candidate in found.candidates:
        for contrast in ("total", "information", "mismatch"):
            for one in candidate.outcomes(contrast):
                increase = one.increase
                rows.append(
                    {
                        "recording": pathlib.Path(recording).stem,
                        "loss": candidate.name,
                        "contrast": contrast,
                        "target": one.target,
                        "increase": f"{increase.mean:.5f}" if increase else "",
                        "low": f"{increase.low:.5f}" if increase else "",
                        "high": f"{increase.high:.5f}" if increase else "",
                        "verdict": one.verdict,
                    }
                )
    return rows


def main() -> None:
    """Read the options, plant losses, and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pusht", help="PushT, packed without loss")
    parser.add_argument("lift", help="Lift, packed without loss")
    parser.add_argument("--seconds", type=float, default=180.0, help="the probe's budget")
    parser.add_argument("--csv", type=pathlib.Path, default=RESULTS / "signal_planted.csv")
    options = parser.parse_args()
    sees: dict[str, Any] = {
        "inputs": {"img": None, "state": [0, 1]},
        "targets": {"action": None, "state": [2, 3]},
    }
    planted = {"contact blurred": blur_contact, "channels swapped": swap, "camera frozen": freeze}
    found = kinograph.probe(
        options.pusht,
        candidates={name: {"img": change} for name, change in planted.items()},
        seconds=options.seconds,
        **sees,
    )
    print(found)
    rows = rows_of(options.pusht, found)
    gripper = {
        "gripper rounded to 3 bits": {"obs/robot0_gripper_qpos": round_gripper},
        "actions rounded to 3 bits": {"actions": round_gripper},
    }
    found = kinograph.probe(options.lift, candidates=gripper, seconds=options.seconds)
    print(found)
    rows += rows_of(options.lift, found)
    for run in range(RUNS):
        codec = LOSSLESS[run % len(LOSSLESS)]
        found = kinograph.probe(
            options.pusht,
            candidates={f"run {run}: {codec}": {"img": codec}},
            seed=run,
            folds=5 + run % 6,
            seconds=5.0,
            **sees,
        )
        rows += rows_of(options.pusht, found)
    flagged = [row for row in rows if row["loss"].startswith("run") and row["verdict"] == "harm"]  # type: ignore[attr-defined]
    print(f"{len(flagged)} lossless runs flagged")
    with options.csv.open("w", newline="") as out:
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
