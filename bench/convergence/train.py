"""Trains robomimic's BC-RNN on Lift with its own loader and with ours, in several orders.

    python bench/convergence/train.py target/convergence/lift.hdf5

Every run is 25 epochs of 100 steps on one thread: robomimic's own algorithm and training loop, unpatched. Runs with one seed
begin with the same weights, whatever the loader. After every epoch the held-out episodes are scored with all three losses. A
run is written to bench/results/convergence.csv when it ends, a row per epoch, and skipped if it is there already:
stop at any time, and continue. bench/results/convergence_orders.csv says how well each order mixes.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from feeds import LOADERS, LOW_DIM, SHUFFLES, STEPS, Feeds
from robomimic.algo import algo_factory
from robomimic.config import config_factory
from robomimic.utils import obs_utils, train_utils

import kinograph

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
TRAINED = RESULTS / "convergence.csv"
ORDERS = RESULTS / "convergence_orders.csv"
EPOCHS, STEPS_PER_EPOCH = 25, 100
LOSSES = ["l2", "l1", "cos"]
COLUMNS = ["loss", "seed", "loader", "epoch", "train", "valid_l2", "valid_l1", "valid_cos"]
# Larger than robomimic's 1e-4, for a network of an eighth of its width: 2500 steps reach the end of the fast descent.
RATE, HIDDEN = 1e-3, 50

Run = tuple[str, str, str]


def make_config(loss: str) -> Any:  # noqa: ANN401 (robomimic has no types)
    """Configure BC-RNN on low-dimensional observations with one of robomimic's losses."""
    config = config_factory("bc")
    with config.unlocked():
        config.train.cuda = False
        config.observation.modalities.obs.low_dim = LOW_DIM
        config.observation.modalities.obs.rgb = []
        config.algo.rnn.enabled = True
        config.algo.rnn.horizon = STEPS
        config.algo.rnn.hidden_dim = HIDDEN
        config.algo.actor_layer_dims = ()
        config.algo.optim_params.policy.learning_rate.initial = RATE
        for name in LOSSES:
            config.algo.loss[f"{name}_weight"] = float(name == loss)
    return config


def make_policy(loss: str, seed: int, batch: Any) -> Any:  # noqa: ANN401
    """Make a policy with weights that depend on the seed alone."""
    config = make_config(loss)
    shapes = {name: list(batch["obs"][name].shape[2:]) for name in LOW_DIM}
    with quiet():
        obs_utils.initialize_obs_utils_with_config(config)
        torch.manual_seed(seed)
        return algo_factory("bc", config, shapes, 7, torch.device("cpu"))


def train(feeds: Feeds, run: Run) -> Iterator[list[str]]:
    """Train once, and give a row per epoch."""
    loss, seed, loader = run
    policy = make_policy(loss, int(seed), feeds.held_out[0])
    batches = feeds.make(loader, int(seed))
    for epoch in range(1, EPOCHS + 1):
        with quiet():
            trained = train_utils.run_epoch(policy, batches, epoch, num_steps=STEPS_PER_EPOCH)
            policy.on_epoch_end(epoch)
            found = train_utils.run_epoch(policy, feeds.held_out, epoch, validate=True)
        values = [trained["Loss"], found["L2_Loss"], found["L1_Loss"], found["Cosine_Loss"]]
        yield [*run[:3], str(epoch), *(f"{value:.7g}" for value in values)]


def done() -> set[Run]:
    """List the runs that the CSV has."""
    if not TRAINED.exists():
        return set()
    with TRAINED.open(newline="") as file:
        return {(row["loss"], row["seed"], row["loader"]) for row in csv.DictReader(file)}


def append(rows: list[list[str]]) -> None:
    """Add rows to the CSV, all of a run in one write."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not TRAINED.exists():
        writer.writerow(COLUMNS)
    writer.writerows(rows)
    with TRAINED.open("a") as file:
        file.write(text.getvalue())


def write_orders(feeds: Feeds, losses: Sequence[str]) -> None:
    """Write how well each of our orders mixes, as a loader reports it; rows of other losses stay as they are."""
    columns = ["loss", "loader", "shuffle", "episodes_per_batch", "vif", "batches"]
    rows = []
    if ORDERS.exists():
        with ORDERS.open(newline="") as file:
            rows = [list(row.values()) for row in csv.DictReader(file) if row["loss"] not in losses]
    for name in SHUFFLES:
        loader = feeds.open_loader(name, 0)
        found = loader.quality
        mixed = [f"{found.episodes_per_batch:.1f}", f"{found.vif:.2f}"]
        rows += [[loss, name, found.shuffle, *mixed, str(len(loader))] for loss in losses]
    with ORDERS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([columns, *sorted(rows, key=lambda row: LOSSES.index(row[0]))])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress robomimic's output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def main() -> None:
    """Check the loaders, then train seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", type=pathlib.Path, help="what lift.py recorded")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES)
    parser.add_argument("--loaders", nargs="+", choices=LOADERS, default=LOADERS)
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="begin no run after so many minutes"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    packed = options.recording.with_suffix(".kino")
    if not packed.exists():
        kinograph.pack(options.recording, packed)
    with quiet():
        obs_utils.initialize_obs_utils_with_config(make_config("l2"))
    feeds = Feeds(options.recording, packed)
    feeds.check()
    write_orders(feeds, options.losses)
    runs = [
        (loss, str(seed), loader)
        for seed in range(1, options.seeds + 1)
        for loss in options.losses
        for loader in options.loaders
    ]
    left = [run for run in runs if run not in done()]
    begin = time.monotonic()
    for number, run in enumerate(left):
        if time.monotonic() - begin > 60 * options.minutes:
            print(f"{len(left) - number} runs left; run again to continue", file=sys.stderr)
            break
        start = time.monotonic()
        rows = list(train(feeds, run))
        append(rows)
        seconds = time.monotonic() - start
        print(
            f"{number + 1} of {len(left)}, {seconds:.0f} s: {run} {rows[-1][4:]}", file=sys.stderr
        )


if __name__ == "__main__":
    main()
