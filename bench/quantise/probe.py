"""What `kinograph.probe` says about the arms, without training a policy on them.

    target/quantise/env/bin/python bench/quantise/probe.py pick-place --seconds 120

Writes bench/results/quantise_probe.csv: a row per arm, contrast and region. Thinned arms are not a codec, and are not probed.
"""

from __future__ import annotations

import argparse
import csv

from arms import ARMS, NAME, Arms
from study import RECORDINGS, ROOT, WORK, Row, read

import kinograph

PROBED = ROOT / "bench" / "results" / "quantise_probe.csv"
FIELDS = [
    "task",
    "arm",
    "contrast",
    "region",
    "increase",
    "low",
    "high",
    "verdict",
    "limit",
    "reason",
]


def to_row(task: str, arm: str, found: kinograph.Outcome) -> Row:
    """Write one outcome."""
    increase, limit = found.increase, found.limit
    ends = (
        {}
        if increase is None
        else {"increase": increase.mean, "low": increase.low, "high": increase.high}
    )
    if limit is not None:
        ends["limit"] = limit
    row = {"task": task, "arm": arm, "contrast": found.contrast, "region": found.region}
    row |= {"verdict": found.verdict, "reason": found.reason or ""}
    return row | {name: f"{value:.5f}" for name, value in ends.items()}


def main() -> None:
    """Probe all arms at once."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task", choices=RECORDINGS)
    parser.add_argument("--seconds", type=float, default=180.0, help="the probe's budget")
    options = parser.parse_args()
    recording = RECORDINGS[options.task]
    arms = Arms(recording, WORK / "quantise" / options.task)
    found = kinograph.probe(
        arms.raw,
        candidates={arm: arms.open(arm) for arm in ARMS if NAME.fullmatch(arm)},
        inputs=recording.seen,
        targets=["actions"],
        seconds=options.seconds,
    )
    print(found)
    measured = [(one.name, one.arms[-1].outcomes) for one in found.candidates]
    measured += [(f"control {one.name} {one.stream}", one.outcomes) for one in found.controls]
    rows = [row for row in read(PROBED) if row["task"] != options.task]
    rows += [to_row(options.task, name, one) for name, outcomes in measured for one in outcomes]
    with PROBED.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
