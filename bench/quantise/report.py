"""Prints the tables of docs/measurements/rounding.md: `python bench/quantise/report.py`.

Arms are compared with `raw` on the same training seed, which is the same initial weights, batches and placements: the mean of the differences
and its 95 % t interval over training seeds. *Shown* means that the interval excludes zero.
"""

from __future__ import annotations

import collections
import csv
import pathlib
import statistics
import sys
from collections.abc import Callable, Mapping

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
sys.path.insert(0, str(ROOT / "bench" / "signal"))

from tables import Difference, paired, points, spearman, spread  # noqa: E402 (of the study of images)

#: Values by training seed.
BySeed = dict[int, float]
ERRORS = ["error", "error_near", "error_elsewhere"]
#: Arm and mode against arm and mode.
Contrast = tuple[str, str, str, str]
PRIMARY: list[Contrast] = [
    (arm, "raw", "raw", "raw") for arm in ("actions4", "actions3", "seen4", "seen3")
]
PRIMARY.append(("raw", "seen4", "raw", "raw"))
SECONDARY: list[Contrast] = [
    ("raw", "seen3", "raw", "raw"),
    ("seen4", "seen4", "seen4", "raw"),
    ("seen3", "seen3", "seen3", "raw"),
    ("seen4", "seen4", "raw", "raw"),
    ("seen3", "seen3", "raw", "raw"),
    ("actions4+events", "raw", "actions4", "raw"),
    ("actions3+events", "raw", "actions3", "raw"),
    ("seen4+events", "raw", "seen4", "raw"),
    ("seen3+events", "raw", "seen3", "raw"),
]


class Results:
    """The runs of a task by arm, mode and training seed."""

    def __init__(self, task: str) -> None:
        rows = [row for row in read("quantise.csv") if row["task"] == task]
        self.sizes = {row["arm"]: row for row in read("quantise_arms.csv") if row["task"] == task}
        self.probed = [row for row in read("quantise_probe.csv") if row["task"] == task]
        self._rows: dict[tuple[str, str], dict[int, dict[str, str]]] = collections.defaultdict(dict)
        for row in rows:
            self._rows[row["arm"], row["mode"]][int(row["seed"])] = row
        self.arms = [arm for arm in self.sizes if (arm, "raw") in self._rows]

    def get(self, arm: str, what: str, mode: str = "raw") -> BySeed:
        """Give a value by training seed; empty if it was not measured."""
        runs = self._rows.get((arm, mode), {})
        return {seed: float(row[what]) for seed, row in runs.items() if row[what]}


def read(name: str) -> list[dict[str, str]]:
    """Read a CSV file of results; no rows if it is missing."""
    path = RESULTS / name
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def apart(one: BySeed, other: BySeed) -> Difference | None:
    """Compare runs with the same training seeds; none if there are fewer than two."""
    seeds = sorted(one.keys() & other.keys())
    return paired([one[seed] - other[seed] for seed in seeds]) if len(seeds) > 1 else None


def percent(one: BySeed, other: BySeed) -> str:
    """Print by which share an error is larger."""
    seeds = sorted(one.keys() & other.keys())
    if len(seeds) < 2:
        return ""
    mean, low, high = paired([100 * (one[seed] / other[seed] - 1) for seed in seeds]).interval()
    bold = "**" if low > 0 or high < 0 else ""
    return f"{bold}{mean:+.1f} [{low:+.1f}, {high:+.1f}]{bold}"


def order(arm: str) -> tuple[bool, str, int]:
    """Sort arms by events, streams, and falling bits."""
    name, _, events = arm.partition("+")
    return bool(events), name[:-1], -int(name[-1]) if name[-1].isdigit() else 0


def sizes_table() -> None:
    """Print what the rounded streams take per frame, rounded and without loss."""
    rows = read("quantise_arms.csv")
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    print(f"| arm | {' | '.join(tasks)} |\n|---|{'---|' * len(tasks)}")
    for arm in sorted({row["arm"] for row in rows}, key=order):
        if arm == "raw" or arm.endswith("/2"):
            continue
        cells = [arm]
        for task in tasks:
            (row,) = (row for row in rows if (row["task"], row["arm"]) == (task, arm))
            rounded, lossless = float(row["rounded_bytes"]), float(row["lossless_bytes"])
            cells.append(f"{rounded:.1f} of {lossless:.1f} ({100 * rounded / lossless:.0f} %)")
        print(f"| {' | '.join(cells)} |")
    for task in tasks:
        print()
        exact_frames({row["arm"]: row for row in rows if row["task"] == task}, task)


def exact_frames(arms: Mapping[str, Mapping[str, str]], task: str) -> None:
    """Print what an exact frame takes, relative to a lossless stream: rounded ones take what they take without events."""
    near = float(arms["raw"]["near"])
    print(f"{task}: {100 * near:.0f} % of the frames are near an event, and an exact one takes")
    for arm, row in arms.items():
        plain = arms.get(arm.removesuffix("+events"))
        if plain is None or plain is row:
            continue
        exact = float(row["rounded_bytes"]) - (1 - near) * float(plain["rounded_bytes"])
        print(
            f"- {arm}: {exact / near / float(row['lossless_bytes']):.1f} times as much as without loss"
        )


def probe_table() -> None:
    """Print by how much the probe says that the error of actions grows, in percent; bold is harm, a question mark what it cannot tell."""
    rows = [row for row in read("quantise_probe.csv") if row["region"] == "everywhere"]
    found = {(row["task"], row["arm"], row["contrast"]): row for row in rows}
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    columns = [(task, contrast) for task in tasks for contrast in ("total", "mismatch")]
    print(
        f"| arm | {' | '.join(', '.join(one) for one in columns)} |\n|---|{'---|' * len(columns)}"
    )
    arms = {row["arm"] for row in rows if not row["arm"].startswith("control")}
    for arm in sorted(arms, key=order):
        cells = [arm]
        for task, contrast in columns:
            row = found[task, arm, contrast]
            ends = [100 * float(row[name]) for name in ("increase", "low", "high")]
            shown = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*ends)
            mark = {"harm": "**", "cannot_tell": "?"}.get(row["verdict"], "")
            cells.append(f"{mark}{shown}{mark}" if mark == "**" else f"{shown}{mark}")
        print(f"| {' | '.join(cells)} |")


def arms_table(results: Results) -> None:
    """Print bytes, success and offline errors of every arm."""
    with_success = bool(results.get("raw", "success"))
    head = ["arm", "bytes per frame", "seeds"]
    head += ["success", "− raw, points"] * with_success
    head += ["action error − raw, %", "near gripper events, %", "elsewhere, %"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for arm in results.arms:
        cells = [arm, f"{float(results.sizes[arm]['frame_bytes']):.1f}"]
        cells.append(str(len(results.get(arm, "error"))))
        if with_success:
            found = results.get(arm, "success")
            cells.append(
                f"{statistics.mean(found.values()):.3f} (SD {spread(list(found.values()))})"
            )
            difference = apart(found, results.get("raw", "success"))
            cells.append(points(difference) if difference and arm != "raw" else "")
        for what in ERRORS:
            base = results.get("raw", what)
            if arm == "raw":
                cells.append(f"{statistics.mean(base.values()):.4f}")
            else:
                cells.append(percent(results.get(arm, what), base))
        print(f"| {' | '.join(cells)} |")


def shown(one: Contrast) -> str:
    """Name a contrast."""
    arm, mode, base, base_mode = one
    modes = [f"{name} on {what} observations" for name, what in ((arm, mode), (base, base_mode))]
    return " − ".join(modes)


def contrasts_table(results: Results, contrasts: list[Contrast]) -> None:
    """Print contrasts on success, with Holm's correction over those that were measured."""
    found = []
    for one in contrasts:
        arm, mode, base, base_mode = one
        values, other = results.get(arm, "success", mode), results.get(base, "success", base_mode)
        difference = apart(values, other)
        if difference is not None and difference.error > 0:
            found.append((one, difference, len(values.keys() & other.keys())))
    print("| contrast | seeds | success, points | p | p, Holm |\n|---|---|---|---|---|")
    corrected = 0.0
    ordered = sorted(found, key=lambda one: one[1].chance())
    for place, (one, difference, seeds) in enumerate(ordered):
        chance = difference.chance()
        corrected = max(corrected, min(1.0, chance * (len(ordered) - place)))
        print(f"| {shown(one)} | {seeds} | {points(difference)} | {chance:.2g} | {corrected:.2g} |")


def predictors(results: Results) -> dict[str, Mapping[str, Mapping[int, float] | float]]:
    """Collect what could predict success: by arm, a value or one per training seed."""
    found: dict[str, Mapping[str, Mapping[int, float] | float]] = {
        f"offline {what.replace('_', ', ')}": {arm: results.get(arm, what) for arm in results.arms}
        for what in ERRORS
    }
    sizes = results.sizes
    coded = [arm for arm in results.arms if not arm.endswith("/2")]
    found["distance from raw frames"] = {arm: float(sizes[arm]["distance"]) for arm in coded}
    for contrast in ("total", "information", "mismatch"):
        for region in ("everywhere", "events"):
            own = {
                row["arm"]: float(row["increase"])
                for row in results.probed
                if (row["contrast"], row["region"]) == (contrast, region) and row["increase"]
            }
            known = {arm: own.get(arm, 0.0) for arm in coded if arm in own or arm == "raw"}
            if len(known) > 1:
                found[f"probe: {contrast}, {region}"] = known
    return found


def predictors_table(results: Results, measure: Callable[[str], BySeed], name: str) -> None:
    """Print how predictors rank arms by a measure; intervals are over training seeds, drawn again within arms."""
    print(f"| predictor of {name} | arms | Spearman [95 %] |\n|---|---|---|")
    for predictor, by_arm in predictors(results).items():
        arms = [arm for arm in by_arm if len(measure(arm)) > 1]
        if len(arms) < 4:
            continue
        random = np.random.default_rng(0)
        drawn = [rank(by_arm, arms, measure, random) for _ in range(2000)]
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        mean = rank(by_arm, arms, measure, None)
        print(f"| {predictor} | {len(arms)} | {mean:+.2f} [{low:+.2f}, {high:+.2f}] |")


def rank(
    by_arm: Mapping[str, Mapping[int, float] | float],
    arms: list[str],
    measure: Callable[[str], BySeed],
    random: np.random.Generator | None,
) -> float:
    """Correlate the means of arms, over all training seeds or over a draw of them."""
    predicted, measured = [], []
    for arm in arms:
        runs, value = measure(arm), by_arm[arm]
        seeds = np.array(sorted(runs))
        chosen = seeds if random is None else random.choice(seeds, len(seeds))
        measured.append(statistics.mean(runs[seed] for seed in chosen))
        one = value if isinstance(value, float) else statistics.mean(value[seed] for seed in chosen)
        predicted.append(one)
    return spearman(predicted, measured)


def main() -> None:
    """Print all tables."""
    sizes_table()
    print()
    probe_table()
    for task in dict.fromkeys(row["task"] for row in read("quantise.csv")):
        results = Results(task)
        print(f"\n## {task}\n")
        arms_table(results)
        print()
        if results.get("raw", "success"):
            contrasts_table(results, PRIMARY)
            print()
            contrasts_table(results, SECONDARY)
            print()
            predictors_table(results, lambda arm: results.get(arm, "success"), "success")  # noqa: B023 (called at once)
        else:
            predictors_table(results, lambda arm: results.get(arm, "error"), "offline error")  # noqa: B023 (called at once)


if __name__ == "__main__":
    main()
