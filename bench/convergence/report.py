"""Prints the tables of docs/measurements/convergence.md: `python bench/convergence/report.py`.

The final loss of a run is the mean of its last five epochs. A loader is compared with robomimic's own on the same seed, which is
the same initial weights: the mean of the differences, its 95 % t interval over seeds, and the difference that would have been seen with a
power of 80 %, all in percent of robomimic's loss.
"""

from __future__ import annotations

import csv
import math
import pathlib
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
sys.path.insert(0, str(ROOT / "bench" / "signal"))

from tables import paired, spread, student  # noqa: E402 (of the study beside this one)

LAST = 5
REFERENCE, COPY = "robomimic", "drop-in"
TITLES = {"l2": "L2", "l1": "L1", "cos": "cosine"}
#: One-sided 80 % quantiles of Student's distribution, by degrees of freedom; later ones are hardly smaller.
POWER = [1.376, 1.061, 0.978, 0.941, 0.920, 0.906, 0.896, 0.889, 0.883]

#: Validation losses by epoch, of every loss, loader and seed.
Curves = dict[str, dict[str, dict[str, list[float]]]]


def read_curves() -> Curves:
    """Read the validation loss that a run was trained on, epoch by epoch."""
    curves: Curves = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    with (RESULTS / "convergence.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            loss = row["loss"]
            curves[loss][row["loader"]][row["seed"]].append(float(row[f"valid_{loss}"]))
    return curves


def read_orders(loss: str) -> dict[str, dict[str, str]]:
    """Read how well every order of a loss mixes; a permutation of all samples is the same in every loader."""
    with (RESULTS / "convergence_orders.csv").open(newline="") as file:
        orders = {row["loader"]: row for row in csv.DictReader(file) if row["loss"] == loss}
    return orders | dict.fromkeys((REFERENCE, COPY), orders["global"])


def final(epochs: Sequence[float]) -> float:
    """Give the final loss of a run."""
    return statistics.mean(epochs[-LAST:])


def visible(apart: Sequence[float]) -> float:
    """Give the difference that a paired t test over these seeds sees with a power of 80 %."""
    freedom = len(apart) - 1
    quantiles = student(freedom) + POWER[min(freedom, len(POWER)) - 1]
    return quantiles * statistics.stdev(apart) / math.sqrt(len(apart))


def compare(runs: dict[str, dict[str, list[float]]], loader: str) -> list[float]:
    """List how much larger the final loss is than robomimic's, in percent, seed by seed."""
    reference = {seed: final(epochs) for seed, epochs in runs[REFERENCE].items()}
    return [
        100 * (final(epochs) / reference[seed] - 1)
        for seed, epochs in runs[loader].items()
        if seed in reference
    ]


def table(loss: str, runs: dict[str, dict[str, list[float]]]) -> None:
    """Print the table of one loss."""
    orders = read_orders(loss)
    print(f"\n**{TITLES[loss]}**\n")
    print("| order | VIF | seeds | final loss | SD | − robomimic, % | would have been seen, % |")
    print("|---|---|---|---|---|---|---|")
    for loader, seeds in runs.items():
        finals = [final(epochs) for epochs in seeds.values()]
        cells = [loader, orders[loader]["vif"], str(len(finals))]
        cells += [f"{statistics.mean(finals):.4f}", spread(finals, 4)]
        apart = compare(runs, loader)
        if loader == REFERENCE:
            cells += ["", ""]
        elif seeds == {seed: runs[REFERENCE].get(seed) for seed in seeds}:
            cells += ["equal in every epoch", ""]
        elif len(apart) < 2:
            cells += [f"{apart[0]:+.1f}", ""]
        else:
            mean, low, high = paired(apart).interval()
            shown = "**" if low > 0 or high < 0 else ""
            cells += [f"{shown}{mean:+.1f} [{low:+.1f}, {high:+.1f}]{shown}"]
            cells += [f"{visible(apart):.1f}"]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Print all tables."""
    curves = read_curves()
    print("| loss | order | episodes per batch | VIF | batches per epoch |")
    print("|---|---|---|---|---|")
    for loss in curves:
        for name, row in read_orders(loss).items():
            mixed = f"{row['episodes_per_batch']} | {row['vif']} | {row['batches']}"
            print(f"| {TITLES[loss]} | {name} | {mixed} |")
    for loss, runs in curves.items():
        table(loss, runs)


if __name__ == "__main__":
    main()
