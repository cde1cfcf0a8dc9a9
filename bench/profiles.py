"""Compare the wait measured by `kinograph.Profile` with a stopwatch, in robomimic's and LeRobot's own training loops.

    python bench/profiles.py           writes target/bench/profile.csv; --save also bench/results/profile.csv

Needs the packages of tests/python/peers/train_robomimic.py, and lerobot==0.4.4; a library that is not installed is skipped.

    robomimic   train_utils.run_epoch over a DataLoader(SequenceDataset): the stopwatch is robomimic's own, `Time_Data_Loading`
    LeRobot     lerobot_train.train over the DataLoader it creates: the stopwatch wraps `next` in the iterator of its loop

Both train a real policy on the CPU. Each row is one run; `difference` is profile / stopwatch − 1, and the command fails above 2 %.
"""

# ruff: noqa: PLC0415 (a library is imported where it is measured: none is required)

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.metadata
import io
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kinograph

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "tests/data/lift_3demos.hdf5"
SAME = 0.02


def main() -> int:
    """Measure what is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--save", action="store_true", help="also write to bench/results")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, measure in (("robomimic", robomimic), ("lerobot", lerobot)):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed: skipped", file=sys.stderr)
            continue
        for workers in (0, 2):
            for run in range(arguments.runs):
                profile, stopwatch_s = measure(arguments.steps, workers)
                row = to_row(f"{name} {version}", workers, run, profile, stopwatch_s)
                print(row, file=sys.stderr)
                rows.append(row)
    if not rows:
        return 1
    folders = [ROOT / "target/bench", *([ROOT / "bench/results"] if arguments.save else [])]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "profile.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    return int(any(abs(float(row["difference"])) > SAME for row in rows))


def to_row(
    loop: str, workers: int, run: int, profile: kinograph.Profile[Any], stopwatch_s: float
) -> dict[str, Any]:
    """Convert one run to a row."""
    report = profile.report()
    return {
        "loop": loop,
        "workers": workers,
        "run": run,
        "steps": report.steps,
        "step ms": f"{report.step.mean_s * 1e3:.1f}",
        "stopwatch wait s": f"{stopwatch_s:.4f}",
        "profile wait s": f"{report.wait_s:.4f}",
        "difference": f"{report.wait_s / stopwatch_s - 1:.5f}",
        "compute ratio": f"{report.compute_ratio:.4f}",
        "utilisation": f"{report.utilisation:.4f}",
    }


def robomimic(steps: int, workers: int) -> tuple[kinograph.Profile[Any], float]:
    """Train robomimic's BC-RNN with its loop; its own stopwatch counts minutes."""
    sys.path.insert(0, str(ROOT / "tests/python/peers"))
    import torch
    import train_robomimic as recipe
    from robomimic.algo import algo_factory
    from robomimic.utils import dataset as their
    from robomimic.utils import train_utils

    torch.set_num_threads(1)
    config = recipe.make_config()
    with recipe.quiet():
        dataset = their.SequenceDataset(
            hdf5_path=str(RECORDING),
            obs_keys=[*recipe.LOW_DIM, recipe.CAMERA],
            dataset_keys=("actions", "rewards", "dones"),
            seq_length=recipe.STEPS,
            hdf5_cache_mode=None,
            hdf5_use_swmr=False,
            load_next_obs=False,
        )
        shapes = {key: list(dataset[0]["obs"][key].shape[1:]) for key in recipe.LOW_DIM}
        shapes[recipe.CAMERA] = [3, 84, 84]
        model = algo_factory("bc", config, shapes, 7, torch.device("cpu"))
    if workers:
        # Each worker opens the file itself.
        dataset.close_and_delete_hdf5_handle()
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=8, shuffle=True, drop_last=True, num_workers=workers
    )
    profile = kinograph.Profile(loader)
    with recipe.quiet():
        log = train_utils.run_epoch(model, profile, 0, num_steps=steps)
    return profile, log["Time_Data_Loading"] * 60


class Stopwatch:
    """Times each `next` of an iterator, without knowing what is inside."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self.waited_s = 0.0

    def __iter__(self) -> Stopwatch:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 (LeRobot's)
        start = time.perf_counter()
        batch = next(self._batches)
        self.waited_s += time.perf_counter() - start
        return batch


def lerobot(steps: int, workers: int) -> tuple[kinograph.Profile[Any], float]:
    """Train LeRobot's ACT with its `train`, on a small dataset created by LeRobot."""
    import torch
    from lerobot.configs.default import DatasetConfig
    from lerobot.configs.train import TrainPipelineConfig
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.scripts import lerobot_train

    torch.set_num_threads(1)
    measured: list[tuple[kinograph.Profile[Any], Stopwatch]] = []
    their_cycle = lerobot_train.cycle

    def cycle(loader: Any) -> Stopwatch:  # noqa: ANN401 (theirs)
        profile = kinograph.Profile(loader)
        stopwatch = Stopwatch(their_cycle(profile))
        measured.append((profile, stopwatch))
        return stopwatch

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        root = Path(folder) / "data"
        make_lerobot(root)
        policy = ACTConfig(
            device="cpu",
            push_to_hub=False,
            chunk_size=8,
            n_action_steps=8,
            dim_model=64,
            n_heads=4,
            dim_feedforward=128,
            pretrained_backbone_weights=None,
            vision_backbone="resnet18",
        )
        config = TrainPipelineConfig(
            dataset=DatasetConfig(repo_id="local/profile", root=str(root), video_backend="pyav"),
            policy=policy,
            output_dir=Path(folder) / "out",
            steps=steps,
            batch_size=8,
            num_workers=workers,
            log_freq=0,
            eval_freq=0,
            save_checkpoint=False,
        )
        # Its arguments come from a command line.
        argv, sys.argv = sys.argv, ["train"]
        lerobot_train.cycle = cycle
        try:
            lerobot_train.train(config)
        finally:
            sys.argv, lerobot_train.cycle = argv, their_cycle
    ((profile, stopwatch),) = measured
    return profile, stopwatch.waited_s


def make_lerobot(root: Path) -> None:
    """Write two episodes with a camera, using LeRobot itself."""
    import numpy as np
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    rng = np.random.default_rng(7)
    names = {"names": None}
    dataset = LeRobotDataset.create(
        repo_id="local/profile",
        fps=20,
        root=root,
        use_videos=False,
        features={
            "observation.state": {"dtype": "float32", "shape": (7,), **names},
            "action": {"dtype": "float32", "shape": (7,), **names},
            "observation.images.front": {
                "dtype": "image",
                "shape": (96, 96, 3),
                "names": ["height", "width", "channels"],
            },
        },
    )
    for _ in range(2):
        for _ in range(60):
            frame = {
                "observation.state": rng.normal(size=7).astype(np.float32),
                "action": rng.normal(size=7).astype(np.float32),
                "observation.images.front": rng.integers(0, 256, (96, 96, 3), dtype=np.uint8),
                "task": "profile",
            }
            dataset.add_frame(frame)
        dataset.save_episode()
    finalize = getattr(dataset, "finalize", None)
    if finalize is not None:
        finalize()


if __name__ == "__main__":
    sys.exit(main())
