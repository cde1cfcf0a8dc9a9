"""One sitting of the study: trainers in threads, one evaluator behind them, one file for the results."""

from __future__ import annotations

import argparse
import csv
import pathlib
import queue
import threading
import time
import traceback
from collections.abc import Mapping

import numpy as np
import torch
from evaluator import Evaluator, Mode, Truth, pose_of
from live import check, live
from parts import AUGMENTED, CROSS, PARTS
from pusht import ACTION, Index, Recording, Whole, arm_frames, contact, normalize, read
from rollouts import Pool
from trainer import Bank, Run, Settings, Trainer

import kinograph

STARTED = time.monotonic()
FIRST_SEED = 100_000
COLUMNS = ["arm", "seed", "mode", "seeds", "success", "coverage", "coverage_first", "won"]
COLUMNS += ["train_s", "loss"]


def log(*words: object) -> None:
    """Say what happens, with the seconds since the start."""
    print(f"[{time.monotonic() - STARTED:6.1f}]", *words, flush=True)


def modes_of(arm: str, seeds: int) -> list[Mode]:
    """Name the tests of an arm: on raw frames, with parity, and with codecs that it was not trained on."""
    plain = [Mode("raw", "raw", seeds)]
    if arm in ("raw", "augmented"):
        return plain + [Mode(f"fed {live}", live, seeds // 2) for live in CROSS]
    if arm.startswith("jpeg"):
        return [*plain, Mode("parity", arm, seeds)]
    return plain


def order_of(path: pathlib.Path, index: Index, arm: str, seed: int, settings: Settings) -> Whole:
    """Give the batches of steps, as the loader would: shuffled globally, or in groups of episodes."""
    _, _, shuffle = arm.partition("@")
    count = settings.steps * settings.batch
    if shuffle == "torch":
        random = torch.Generator().manual_seed(3000 + seed)
        epochs = -(-count // len(index.train))
        drawn = [torch.randperm(len(index.train), generator=random) for _ in range(epochs)]
        chosen = torch.cat(drawn).numpy()
    else:
        dataset = kinograph.open(path)
        samples = dataset.samples({ACTION: [0]}, episodes=index.train_episodes.tolist())
        setting = kinograph.Shuffle(fraction=float(shuffle)) if shuffle else "global"
        options = {"batch_size": settings.batch, "seed": seed, "last_batch": "wrap"}
        chosen = dataset.order(samples, shuffle=setting, **options)[:count]["sample"]
    return index.train[chosen[:count]].reshape(settings.steps, settings.batch)


class Study:
    """Trainers in threads, one evaluator behind them, one file for the results."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.settings = Settings(steps=options.steps)
        arms, seeds = PARTS[options.part]
        done = self._done()
        self.runs = [(arm, seed) for seed in seeds for arm in arms if (arm, seed) not in done]
        self.runs = self.runs[: options.most]
        self.recording = read(options.recording)
        self.index = Index(self.recording.lengths)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        fed = {mode.live for arm in arms for mode in modes_of(arm, 1)}
        needed = ["raw", *sorted(fed), *(frame for arm in arms for frame in self.mixture(arm))]
        self.bank = Bank(self._frames(list(dict.fromkeys(needed))), self.index, device)
        log("arms", list(self.bank.offsets), "on", device)
        self.pool = Pool(options.workers, 3 * options.seeds, live)
        self.evaluator = Evaluator(self.bank, self.index, self._truth(), self.pool)
        self.trained: queue.Queue[tuple[Run, dict, list[float], float] | None] = queue.Queue(4)
        self.lock = threading.Lock()
        self.failed = False
        #: The longest training and the longest evaluation so far, in seconds.
        self.longest, self.slowest = 0.0, 10.0

    @staticmethod
    def mixture(arm: str) -> Mapping[str, float]:
        """Give the frames that an arm trains on."""
        return AUGMENTED if arm == "augmented" else {arm.partition("@")[0]: 1.0}

    def _done(self) -> set[tuple[str, int]]:
        if not self.options.csv.exists():
            return set()
        with self.options.csv.open() as file:
            return {(row["arm"], int(row["seed"])) for row in csv.DictReader(file)}

    def _frames(self, arms: list[str]) -> dict[str, np.ndarray]:
        options = self.options
        folder, raw = options.folder, options.recording
        folder.mkdir(parents=True, exist_ok=True)
        found = {arm: arm_frames(arm, self.recording, raw, folder) for arm in arms}
        for arm in arms:
            if arm.startswith("jpeg"):
                check(arm, self.recording.images[::500], found[arm][::500])
        return found

    def _truth(self) -> Truth:
        recording, index, device = self.recording, self.index, self.bank.device
        positions, chunks = inputs_of(recording, index)
        moving = contact(recording.state, recording.lengths)[index.chunk]
        on_device = [torch.from_numpy(one).to(device) for one in (positions, chunks, moving)]
        pose = pose_of(recording.state).to(device)
        return Truth(*on_device[:2], pose, on_device[2], torch.from_numpy(index.inside).to(device))

    def run(self) -> None:
        """Do all runs; stop early at the deadline."""
        trainers = [Trainer(self.bank, self.settings) for _ in range(self.options.trainers)]
        log(len(trainers), "trainers are ready;", len(self.runs), "runs")
        judge = threading.Thread(target=self._judge)
        threads = [threading.Thread(target=self._train, args=[trainer]) for trainer in trainers]
        for thread in (judge, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        self.trained.put(None)
        judge.join()
        self.pool.close()
        log("done", "with failures" if self.failed else "")

    def _next(self) -> tuple[str, int] | None:
        with self.lock:
            waiting = (self.trained.qsize() + self.options.trainers) * self.slowest
            left = self.options.deadline - (time.monotonic() - STARTED)
            if not self.runs or left < self.longest + waiting:
                return None
            return self.runs.pop(0)

    def _train(self, trainer: Trainer) -> None:
        while (chosen := self._next()) is not None:
            arm, seed = chosen
            order = order_of(self.options.recording, self.index, arm, seed, self.settings)
            inputs = inputs_of(self.recording, self.index)
            run = Run(arm, seed, order, *inputs, self.mixture(arm))
            begun = time.monotonic()
            weights, curve = trainer.train(run)
            took = time.monotonic() - begun
            self.longest = max(self.longest, took)
            log(f"trained {arm}:{seed} in {took:.1f} s, loss {curve[-1]:.4f}")
            self.trained.put((run, weights, curve, took))

    def _judge(self) -> None:
        cuda = self.bank.device.type == "cuda"
        with torch.cuda.stream(torch.cuda.Stream(priority=-1) if cuda else None):
            while (finished := self.trained.get()) is not None:
                try:
                    self._evaluate(*finished)
                except Exception:  # the other runs go on
                    self.failed = True
                    log("FAILED", finished[0].arm, finished[0].seed, traceback.format_exc())

    def _evaluate(self, run: Run, weights: dict, curve: list[float], took: float) -> None:
        begun = time.monotonic()
        self.evaluator.load(weights)
        outcomes = self.evaluator.roll_out(modes_of(run.arm, self.options.seeds), FIRST_SEED)
        rolled = time.monotonic() - begun
        frames = run.arm.partition("@")[0]
        measures = self.evaluator.measures("raw" if frames == "augmented" else frames)
        self.slowest = max(self.slowest, time.monotonic() - begun)
        rows = [
            {
                **{"arm": run.arm, "seed": run.seed, "mode": mode, "seeds": len(won)},
                **{"success": f"{won.mean():.4f}", "coverage": f"{covered.mean():.4f}"},
                "coverage_first": f"{covered[: len(won) // 2].mean():.4f}",
                **{"won": np.packbits(won).tobytes().hex(), "train_s": f"{took:.1f}"},
                "loss": " ".join(f"{loss:.4f}" for loss in curve),
                **{name: f"{value:.6g}" for name, value in measures.items()},
            }
            for mode, (won, covered) in outcomes.items()
        ]
        append(self.options.csv, rows)
        shown = {row["mode"]: (row["success"], row["coverage"]) for row in rows}
        took = time.monotonic() - begun
        log(f"{run.arm}:{run.seed}", shown, f"rollouts {rolled:.1f} s, all {took:.1f} s")


def inputs_of(recording: Recording, index: Index) -> tuple[np.ndarray, np.ndarray]:
    """Give what a policy gets beside images, and the chunks that it learns."""
    agent = recording.state[:, :2]
    positions = normalize(np.concatenate([agent[index.before], agent], 1))
    chunks = normalize(recording.action[index.chunk]).reshape(len(agent), -1)
    return positions, chunks


def append(path: pathlib.Path, rows: list[dict[str, object]]) -> None:
    """Add rows to a CSV file."""
    columns = [*COLUMNS, *(name for name in rows[0] if name not in COLUMNS)]
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)
