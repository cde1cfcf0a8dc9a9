"""Tables of the PushT study from its CSV files: what differs, by how much, and what would have predicted it.

python bench/signal/tables.py            # reads bench/results/signal_*.csv, prints Markdown

The pilot has a file of its own, with other initial weights, and is not mixed with the rest.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import math
import pathlib
import statistics
from collections.abc import Callable, Sequence

import numpy as np

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
Rows = list[dict[str, str]]
#: Two-sided 95 % quantiles of Student's distribution, by degrees of freedom; beyond the last, the normal one.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179]
STUDENT += [2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086]
Interval = tuple[float, float, float]


def read(name: str) -> Rows:
    """Read a CSV file of results; none if it is missing."""
    path = RESULTS / name
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def student(freedom: float) -> float:
    """Give the quantile, rounded to the safe side."""
    whole = max(1, math.floor(freedom))
    return STUDENT[whole - 1] if whole <= len(STUDENT) else 2.08


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference of means, its standard error, and the degrees of freedom of that error."""

    mean: float
    error: float
    freedom: float

    def interval(self) -> Interval:
        """Give the mean and its 95 % interval."""
        reach = student(self.freedom) * self.error
        return self.mean, self.mean - reach, self.mean + reach

    def chance(self) -> float:
        """Give the two-sided p-value: the share of Student's distribution beyond, t = √freedom · tan(angle)."""
        beyond = math.atan(abs(self.mean) / self.error / math.sqrt(self.freedom))
        angles = np.linspace(0, math.pi / 2, 20_001)
        density = np.cos(angles) ** (self.freedom - 1)
        return float(density[angles > beyond].sum() / density.sum())


def welch(one: Sequence[float], other: Sequence[float]) -> Difference:
    """Compare two means of runs that were trained separately."""
    parts = [statistics.variance(values) / len(values) for values in (one, other)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (one, other), strict=True)
    )
    apart = statistics.mean(one) - statistics.mean(other)
    return Difference(apart, math.sqrt(sum(parts)), freedom)


def paired(apart: Sequence[float]) -> Difference:
    """Compare two tests of the same runs, from their differences."""
    error = statistics.stdev(apart) / math.sqrt(len(apart))
    return Difference(statistics.mean(apart), error, len(apart) - 1)


def points(difference: Difference) -> str:
    """Print an interval in points, and whether it excludes zero."""
    mean, low, high = (100 * value for value in difference.interval())
    shown = "**shown**" if low > 0 or high < 0 else "not shown"
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] {shown}"


class Results:
    """Success and coverage by arm, mode and training seed."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.values: dict[tuple[str, str], dict[int, dict[str, float]]] = collections.defaultdict(
            dict
        )
        for row in rows:
            found = {"success": float(row["success"]), "coverage": float(row["coverage"])}
            found |= {
                "success_first": first_half(row),
                "coverage_first": float(row["coverage_first"]),
            }
            self.values[row["arm"], row["mode"]][int(row["seed"])] = found
        self.arms = list(dict.fromkeys(row["arm"] for row in rows))

    def get(self, arm: str, mode: str, what: str = "success") -> list[float]:
        """List a value over training seeds."""
        return [one[what] for one in self.values[arm, mode].values()]

    def within(self, arm: str, mode: str, what: str) -> Difference:
        """Compare a mode with raw frames in the same weights, on the same environment seeds."""
        fed, raw = self.values[arm, mode], self.values[arm, "raw"]
        base = f"{what}_first" if mode.startswith("fed") else what
        return paired([fed[seed][what] - raw[seed][base] for seed in fed])


def first_half(row: dict[str, str]) -> float:
    """Give the success on the first half of the environment seeds, which the fed modes have."""
    won = np.unpackbits(np.frombuffer(bytes.fromhex(row["won"]), np.uint8))[: int(row["seeds"])]
    return float(won[: len(won) // 2].mean())


def arms_table(results: Results) -> None:
    """Print success and coverage on raw frames, and their difference from the arm without loss."""
    print(
        "| arm | seeds | success on raw frames | coverage | success − raw, points | coverage − raw, points |"
    )
    print("|---|---|---|---|---|---|")
    for arm in results.arms:
        success, coverage = (results.get(arm, "raw", what) for what in ("success", "coverage"))
        line = f"| {arm} | {len(success)} | {statistics.mean(success):.3f} (SD {spread(success)})"
        line += f" | {statistics.mean(coverage):.3f}"
        for what, values in (("success", success), ("coverage", coverage)):
            base = results.get("raw", "raw", what)
            line += (
                f" | {points(welch(values, base))}" if arm != "raw" and len(values) > 1 else " | "
            )
        print(f"{line} |")


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Print a standard deviation."""
    return f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else "–"


def modes_table(results: Results) -> None:
    """Print what other frames at test do to the same weights."""
    print(
        "| trained on | tested on | success | − raw frames, points | coverage − raw frames, points |"
    )
    print("|---|---|---|---|---|")
    for arm, mode in results.values:
        values = results.get(arm, mode)
        if mode == "raw" or len(values) < 2:
            continue
        success = points(results.within(arm, mode, "success"))
        coverage = points(results.within(arm, mode, "coverage"))
        print(f"| {arm} | {mode} | {statistics.mean(values):.3f} | {success} | {coverage} |")


#: What the study was for: arms against raw, and codecs that a policy was not trained on, in the same weights.
PRIMARY = [("jpeg75", "raw"), ("av1-37", "raw"), ("augmented", "raw")]
PRIMARY += [(arm, f"fed {codec}") for arm in ("raw", "augmented") for codec in ("jpeg95", "jpeg40")]


def primary_table(results: Results) -> None:
    """Print the primary contrasts on success, and whether they hold after Holm's correction."""
    base = results.get("raw", "raw")
    found = {
        f"{arm}, {mode}": results.within(arm, mode, "success")
        if mode != "raw"
        else welch(results.get(arm, mode), base)
        for arm, mode in PRIMARY
    }
    print("| contrast | points | p | p, Holm |")
    print("|---|---|---|---|")
    corrected = 0.0
    ordered = sorted(found.items(), key=lambda pair: pair[1].chance())
    for place, (name, difference) in enumerate(ordered):
        chance = difference.chance()
        corrected = max(corrected, min(1.0, chance * (len(ordered) - place)))
        print(f"| {name} | {points(difference)} | {chance:.2g} | {corrected:.2g} |")


def pilot_table(rows: Rows) -> None:
    """Print the pilot: mean success and coverage by arm and test, with the number of training seeds."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["arm"], row["test_mode"]].append(row)
    print("| trained on | tested on | training seeds | success | coverage |")
    print("|---|---|---|---|---|")
    for (arm, mode), runs in groups.items():
        success = [float(row["success"]) for row in runs]
        coverage = statistics.mean(float(row["mean_max_coverage"]) for row in runs)
        mean = f"{statistics.mean(success):.3f} (SD {spread(success)})"
        print(f"| {arm} | {mode} | {len(runs)} | {mean} | {coverage:.3f} |")


def ranks(values: Sequence[float]) -> np.ndarray:
    """Rank values; ties share their mean rank."""
    array = np.asarray(values, float)
    return np.array([(array < one).sum() + ((array == one).sum() - 1) / 2 for one in array])


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Give Spearman's rank correlation."""
    first, second = ranks(one), ranks(other)
    if first.std() == 0 or second.std() == 0:
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def predictors_table(results: Results, untrained: dict[str, dict[str, float]]) -> None:
    """Print how measures rank arms by success on raw frames, and runs within arms."""
    own = [name for name in results.rows[0] if name.endswith(("_raw", "_own"))]
    runs = [row for row in results.rows if row["mode"] == "raw" and "@" not in row["arm"]]
    print("| predictor | needs a training per arm | arms | over arms [95 %] | within arms |")
    print("|---|---|---|---|---|")
    for name in own:
        line(name, "yes", runs, lambda row, name=name: float(row[name]))
    for name in sorted({name for values in untrained.values() for name in values}):
        known = [row for row in runs if name in untrained.get(row["arm"], {})]
        line(name, "no", known, lambda row, name=name: untrained[row["arm"]][name])


def line(name: str, training: str, runs: Rows, value: Callable[[dict[str, str]], float]) -> None:
    """Print the correlations of one predictor."""
    groups = collections.defaultdict(list)
    for row in runs:
        groups[row["arm"]].append((value(row), float(row["success"])))
    if len(groups) < 4:
        return
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(2000):
        means = [
            np.mean([pairs[k] for k in random.integers(0, len(pairs), len(pairs))], 0)
            for pairs in groups.values()
        ]
        drawn.append(spearman(*zip(*means, strict=True)))
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    means = [np.mean(pairs, 0) for pairs in groups.values()]
    within = [
        tuple(np.array(pair) - mean)
        for pairs, mean in zip(groups.values(), means, strict=True)
        for pair in pairs
    ]
    inside = spearman(*zip(*within, strict=True)) if training == "yes" else math.nan
    shown = "–" if math.isnan(inside) else f"{inside:+.2f}"
    over = spearman(*zip(*means, strict=True))
    print(
        f"| {name} | {training} | {len(groups)} | {over:+.2f} [{low:+.2f}, {high:+.2f}] | {shown} |"
    )


def read_untrained() -> dict[str, dict[str, float]]:
    """Read what is known of an arm without a policy: its images, and by how much the probe says that errors grow."""
    found: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for row in read("signal_pilot.csv"):
        if row["neg_psnr"]:
            found[row["arm"]] |= {"PSNR": -float(row["neg_psnr"]), "SSIM": -float(row["neg_ssim"])}
    # The pilot had no AV1; the bound of the study's arm is its PSNR, to a decibel.
    found["av1-37"]["PSNR"] = 37.0
    for row in read("signal_probe.csv"):
        if row["region"] == "everywhere" and row["increase"]:
            name = f"probe: {row['contrast']}, {row['target']}"
            found[row["arm"]][name] = float(row["increase"])
    return found


def main() -> None:
    """Print all tables."""
    from lift_tables import lift_tables  # noqa: PLC0415 (these use what is above)
    from orders import orders_tables  # noqa: PLC0415

    results = Results(read("signal_pusht.csv"))
    arms_table(results)
    print()
    orders_tables(results)
    print()
    modes_table(results)
    print()
    primary_table(results)
    print()
    pilot_table(read("signal_pilot.csv"))
    print()
    predictors_table(results, read_untrained())
    print()
    lift_tables()


if __name__ == "__main__":
    main()
