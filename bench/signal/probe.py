"""The probe against success on PushT: whether it ranks codecs as policies do.

    python bench/signal/probe.py pusht.kino                     # needs torch for the blur, PyAV for AV1; no GPU
    python bench/signal/probe.py pusht.kino --encoder trained   # into signal_probe_trained.csv
    python bench/signal/probe.py pusht.kino --correlate         # the tables from the CSV files only

The recording is that of diffusion_policy, packed without loss (`kinograph pack --rate 10 … pusht.kino`). The probe has what
the policies of the study see, the image and the agent's position, and predicts action chunks and the block's position. Its three
contrasts are compared with the success of policies that were trained and rolled out (`bench/results/signal_*.csv`): total
with rollouts on raw frames, information with parity, mismatch with policies that trained on raw frames and were fed a codec.
"""

from __future__ import annotations

import argparse
import collections
import csv
import pathlib
import statistics

import numpy as np
import numpy.typing as npt

import kinograph

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
#: Which rollouts a contrast should rank, and in which file the arms are called what.
MODES = {"total": "raw", "information": "parity", "mismatch": "fed"}
ARMS = ["jpeg95", "jpeg75", "jpeg40", "jpeg15", "blur4", "av1-37"]
DRAWS = 4000
FIELDS = [
    "arm",
    "contrast",
    "target",
    "region",
    "increase",
    "low",
    "high",
    "verdict",
    "limit",
    "reason",
]

Floats = npt.NDArray[np.float64]


def measure(options: argparse.Namespace) -> None:
    """Probe all arms at once, and write a row per arm, contrast, target and region."""
    from pusht import blur, to_codec  # noqa: PLC0415 (only this needs torch)

    candidates: dict[str, dict[str, object]] = {"raw": {"img": "predict"}}
    for arm in options.arms:
        candidates[arm] = {"img": to_codec(arm) or blur}
    found = kinograph.probe(
        options.recording,
        candidates=candidates,
        inputs={"img": None, "state": [0, 1]},
        targets={"action": None, "state": [2, 3]},
        seconds=options.seconds,
        encoder=options.encoder,
    )
    print(found)
    with options.csv.open("w", newline="") as out:
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        writer.writeheader()
        measured = [(one.name, one.arms[-1].outcomes) for one in found.candidates]
        measured += [(f"control {one.name}", one.outcomes) for one in found.controls]
        for name, outcomes in measured:
            for one in outcomes:
                increase = one.increase
                writer.writerow(
                    {
                        "arm": name,
                        "contrast": one.contrast,
                        "target": one.target,
                        "region": one.region,
                        "increase": f"{increase.mean:.5f}" if increase else "",
                        "low": f"{increase.low:.5f}" if increase else "",
                        "high": f"{increase.high:.5f}" if increase else "",
                        "verdict": one.verdict,
                        "limit": "" if one.limit is None else f"{one.limit:.5f}",
                        "reason": one.reason or "",
                    }
                )


def success() -> dict[str, dict[str, list[float]]]:
    """Give the success of every run less the mean of raw runs on raw frames in its file, by contrast and arm."""
    found: dict[str, dict[str, list[float]]] = {
        contrast: collections.defaultdict(list) for contrast in MODES
    }
    for name, mode_of in (("signal_pilot.csv", "test_mode"), ("signal_pusht.csv", "mode")):
        path = RESULTS / name
        if not path.exists():
            continue
        with path.open() as file:
            rows = list(csv.DictReader(file))
        raw = [
            float(row["success"]) for row in rows if (row["arm"], row[mode_of]) == ("raw", "raw")
        ]
        level = statistics.mean(raw)
        for row in rows:
            apart = float(row["success"]) - level
            mode, arm = row[mode_of], row["arm"]
            fed = mode.removeprefix("x_").removeprefix("fed ")
            if arm == "raw" and mode == "raw":
                for runs in found.values():
                    runs["raw"].append(apart)
            elif arm == "raw" and fed in ARMS:
                found["mismatch"][fed].append(apart)
            elif arm in ARMS and mode in ("raw", "parity"):
                found["total" if mode == "raw" else "information"][arm].append(apart)
    return found


def ranks(values: Floats) -> Floats:
    """Give ranks; equal values share the mean of theirs."""
    return np.array([np.mean([(values < one).sum(), (values <= one).sum() - 1]) for one in values])


def spearman(one: Floats, other: Floats) -> float:
    """Give Spearman's correlation; NaN if either is constant."""
    ranked = [ranks(one), ranks(other)]
    if min(np.ptp(values) for values in ranked) == 0:
        return float("nan")
    return float(np.corrcoef(*ranked)[0, 1])


def correlate(file: pathlib.Path) -> None:
    """Print how the probe ranks arms, beside success; intervals are over runs, drawn again within arms."""
    with file.open() as opened:
        rows = [row for row in csv.DictReader(opened) if row["region"] == "everywhere"]
    random = np.random.default_rng(0)
    measured = success()
    print(
        "| contrast | target | arms | Spearman with −success | 95 % over runs | without raw | without raw and blur4 |\n|---|---|---|---|---|---|---|"
    )
    table = []
    for contrast in MODES:
        runs = measured[contrast]
        for target in sorted({row["target"] for row in rows}):
            own = {
                row["arm"]: row
                for row in rows
                if (row["contrast"], row["target"]) == (contrast, target) and row["arm"] in runs
            }
            if len(own) < 3:
                continue
            increases = np.array([float(row["increase"]) for row in own.values()])
            means = np.array([statistics.mean(runs[arm]) for arm in own])
            draws = []
            for _ in range(DRAWS):
                drawn = [statistics.mean(random.choice(runs[arm], len(runs[arm]))) for arm in own]
                draws.append(spearman(increases, -np.array(drawn)))
            low, high = np.nanquantile(draws, [0.025, 0.975])
            without = []
            for left_out in ({"raw"}, {"raw", "blur4"}):
                kept = np.array([arm not in left_out for arm in own])
                without.append(f"{spearman(increases[kept], -means[kept]):+.2f} ({kept.sum()})")
            print(
                f"| {contrast} | {target} | {len(own)} | {spearman(increases, -means):+.2f} | {low:+.2f} to {high:+.2f} "
                f"| {' | '.join(without)} |"
            )
            table += [
                (contrast, target, arm, row, statistics.mean(runs[arm]), len(runs[arm]))
                for arm, row in own.items()
            ]
    print(
        "\n| contrast | arm | predicts | increase of the error | verdict | success less raw, points (runs) |\n|---|---|---|---|---|---|"
    )
    for contrast, target, arm, row, mean, count in table:
        ends = [f"{100 * float(row[end]):+.1f}" for end in ("increase", "low", "high")]
        print(
            f"| {contrast} | {arm} | {target} | {ends[0]} % [{ends[1]} to {ends[2]}] | {row['verdict'].replace('_', ' ')} "
            f"| {100 * mean:+.1f} ({count}) |"
        )


def main() -> None:
    """Read the options, probe, and correlate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", help="the recording, packed without loss")
    parser.add_argument("--seconds", type=float, default=600.0, help="the probe's budget")
    parser.add_argument("--encoder", choices=["random", "trained"], default="random")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, help="by default all")
    parser.add_argument("--correlate", action="store_true", help="do not probe again")
    parser.add_argument("--csv", type=pathlib.Path, help="by default in bench/results")
    options = parser.parse_args()
    suffix = "_trained" if options.encoder == "trained" else ""
    options.csv = options.csv or RESULTS / f"signal_probe{suffix}.csv"
    if not options.correlate:
        measure(options)
    correlate(options.csv)


if __name__ == "__main__":
    main()
