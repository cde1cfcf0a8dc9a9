"""Tables of the paired comparison on Lift, which `python bench/signal/tables.py` prints from bench/results/signal_lift.csv.

Arms are compared with `lossless` on the same training seed, which is the same initial weights, batches and placements.
"""

from __future__ import annotations

import statistics

import numpy as np
from tables import paired, points, read, spread

BASE = "lossless"
#: Rows by training seed.
Runs = dict[str, dict[str, str]]


def wins(row: dict[str, str]) -> np.ndarray:
    """Say which placements a policy won."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(row["won"]), np.uint8))
    return bits[: int(row["placements"])].astype(bool)


def lift_tables() -> None:
    """Print bytes, success and held-out error of every arm, and the attempts that only one of two arms won."""
    arms: dict[str, Runs] = {}
    for row in read("signal_lift.csv"):
        arms.setdefault(row["arm"], {})[row["seed"]] = row
    if BASE not in arms:
        return
    head = ["trained on", "bytes", "seeds", "success", "− lossless, points"]
    head += ["only this arm won", "only lossless won", "held-out error − lossless, %"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for arm, runs in arms.items():
        success = [float(row["success"]) for row in runs.values()]
        cells = [arm, next(iter(runs.values()))["bytes"], str(len(runs))]
        cells.append(f"{statistics.mean(success):.3f} (SD {spread(success)})")
        shared = [seed for seed in runs if seed in arms[BASE]]
        if arm != BASE and len(shared) > 1:
            cells += compared(runs, arms[BASE], shared)
        print(f"| {' | '.join(cells + [''] * (len(head) - len(cells)))} |")


def compared(runs: Runs, base: Runs, seeds: list[str]) -> list[str]:
    """Compare an arm with `lossless`, seed by seed."""
    apart = [float(runs[seed]["success"]) - float(base[seed]["success"]) for seed in seeds]
    pairs = [(wins(runs[seed]), wins(base[seed])) for seed in seeds]
    errors = [100 * (float(runs[seed]["error"]) / float(base[seed]["error"]) - 1) for seed in seeds]
    cells = [points(paired(apart))]
    cells += [str(sum(int((one & ~other).sum()) for one, other in pairs))]
    cells += [str(sum(int((other & ~one).sum()) for one, other in pairs))]
    mean, low, high = paired(errors).interval()
    bold = "**" if low > 0 or high < 0 else ""
    return [*cells, f"{bold}{mean:+.1f} [{low:+.1f}, {high:+.1f}]{bold}"]
