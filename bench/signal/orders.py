"""How the order arms of the PushT study mix, and how their policies compare with those of a global shuffle.

    python bench/signal/orders.py pusht.kino      # writes bench/results/signal_orders.csv: groups, episodes per batch, VIF
    python bench/signal/tables.py                 # prints the tables among the others

`raw` is a global shuffle of Kinograph's, `raw@torch` a permutation of all samples per epoch, `raw@0.1` groups of a tenth of the
episodes. What is compared was fixed before the runs (preregistration.md).
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import statistics
from collections.abc import Callable

from tables import RESULTS, Difference, Results, paired, points, read, spread, welch

GROUPS = ["raw@0.25", "raw@0.1", "raw@0.05"]
#: Two orders that mix all samples of an epoch.
GLOBAL = ["raw", "raw@torch"]
ORDERS = "signal_orders.csv"
#: Entries of the training curve, which has one per 500 steps.
CURVE = {"training loss, 3,500 steps": 6, "training loss, 7,000 steps": 13}
Row = dict[str, str]


def measures() -> dict[str, Callable[[Row], float]]:
    """List what is compared beside rollouts, and how a row gives it."""
    found: dict[str, Callable[[Row], float]] = {
        "held-out flow loss": lambda row: float(row["flow_raw"]),
        "held-out chunk error": lambda row: float(row["chunk_raw"]),
    }
    for name, place in CURVE.items():
        found[name] = lambda row, place=place: float(row["loss"].split()[place])
    return found


def orders_tables(results: Results) -> None:
    """Print the arms against `raw`, their losses, and the arms with groups against both global shuffles."""
    arms = [arm for arm in [*GLOBAL, *GROUPS] if len(results.get(arm, "raw")) > 1]
    if not set(arms) & set(GROUPS):
        return
    mixing = {row["arm"]: row for row in read(ORDERS)}
    head = ["order", "VIF", "seeds", "success", "− raw, points", "coverage − raw"]
    head += [f"success − {base}, same seeds" for base in GLOBAL]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for arm in arms:
        success = results.get(arm, "raw")
        mean = f"{statistics.mean(success):.3f} (SD {spread(success)})"
        cells = [arm, mixing[arm]["vif"], str(len(success)), mean]
        if arm != "raw":
            coverage = [results.get(one, "raw", "coverage") for one in (arm, "raw")]
            cells += [points(welch(success, results.get("raw", "raw"))), points(welch(*coverage))]
            cells += [points(same(results, arm, base)) for base in GLOBAL if base != arm]
        print(f"| {' | '.join(cells + [''] * (len(head) - len(cells)))} |")
    pooled = [[one for arm in part for one in results.get(arm, "raw")] for part in (GROUPS, GLOBAL)]
    counts = " against ".join(str(len(part)) for part in pooled)
    print(
        f"\nAll with groups − both global shuffles, {counts} policies: {points(welch(*pooled))}\n"
    )
    for base in GLOBAL:
        losses_table(results, arms, base)


def same(results: Results, arm: str, base: str) -> Difference:
    """Compare success on the training seeds that both arms have."""
    own, other = results.values[arm, "raw"], results.values[base, "raw"]
    shared = own.keys() & other.keys()
    return paired([own[seed]["success"] - other[seed]["success"] for seed in sorted(shared)])


def losses_table(results: Results, arms: list[str], base: str) -> None:
    """Print by how many percent losses are larger than in another arm, on the training seeds that both have."""
    rows = {(row["arm"], row["seed"]): row for row in results.rows if row["mode"] == "raw"}
    print(f"| − {base} | {', % | '.join(measures())}, % |\n|---|{'---|' * len(measures())}")
    for arm in arms:
        seeds = [seed for one, seed in rows if one == arm and (base, seed) in rows]
        if arm == base or len(seeds) < 2:
            continue
        cells = [arm]
        for value in measures().values():
            ratios = [
                100 * (value(rows[arm, seed]) / value(rows[base, seed]) - 1) for seed in seeds
            ]
            mean, low, high = paired(ratios).interval()
            bold = "**" if low > 0 or high < 0 else ""
            cells.append(f"{bold}{mean:+.1f} [{low:+.1f}, {high:+.1f}]{bold}")
        print(f"| {' | '.join(cells)} |")
    print()


def write_orders(recording: pathlib.Path) -> None:
    """Write how each order mixes, as a loader reports it."""
    import numpy as np  # noqa: PLC0415 (the tables need neither a recording nor Kinograph)
    from pusht import Index  # noqa: PLC0415

    import kinograph.numpy  # noqa: PLC0415

    dataset = kinograph.open(recording)
    episodes = Index(np.array([episode.frames for episode in dataset])).train_episodes.tolist()
    rows = []
    for arm in [*GLOBAL, *GROUPS]:
        _, _, share = arm.partition("@")
        is_global = share in ("", "torch")
        loader = kinograph.numpy.Loader(
            dataset,
            windows={"action": [0]},
            episodes=episodes,
            batch_size=256,
            last_batch="wrap",
            shuffle="global" if is_global else kinograph.Shuffle(fraction=float(share)),
            seed=100,
        )
        found = loader.quality
        row = {"arm": arm, "shuffle": found.shuffle, "training_episodes": len(episodes)}
        mixed = {"episodes_per_batch": f"{found.episodes_per_batch:.1f}", "vif": f"{found.vif:.2f}"}
        rows.append(row | mixed)
    with (RESULTS / ORDERS).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", type=pathlib.Path, help="the recording, packed without loss")
    write_orders(parser.parse_args().recording)
