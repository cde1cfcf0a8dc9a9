"""Predicted against measured compute ratios: every candidate plan × storage × step time, on real and generated recordings.

    python bench/plan.py lift.hdf5 aloha/ mixed/ g1_lerobot/ --csv bench/results/plan.csv

For each recording the planner measures once. Then a few candidate plans are packed, and each is loaded in a loop with
emulated steps, on this storage and on emulated slower storage. Two questions are answered: how far are predictions
from measurements, and how far is the chosen plan from the best one that was tried?
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import tempfile

import kinograph
from kinograph import _core
from kinograph._doctor import _to_loader
from kinograph._source import to_source

STORAGE = {"this storage": None, "500 MB/s": "500MB/s", "100 MB/s, 8 ms": "100MB/s,8ms"}
STEPS_S = (0.005, 0.02, 0.1)


def windows(dataset: kinograph.Dataset) -> dict[str, list[int]]:
    """Two frames of every camera, and ten of everything else."""
    asked = {}
    for name, stream in dataset.streams.items():
        if stream.kind in ("image", "depth"):
            asked[name] = [-1, 0]
        elif stream.kind == "vector":
            asked[name] = list(range(10))
    return asked


def few(choice: kinograph.PlanChoice, answers: list[kinograph.PlanChoice], most: int) -> list[int]:
    """Choose the plans that are best somewhere, and the best others: all are allowed."""
    keys = [plan.codecs for plan in choice.plans]
    wanted = []
    for answer in answers:
        number = keys.index(answer.chosen.codecs)
        if number not in wanted:
            wanted.append(number)
    others = [n for n, plan in enumerate(choice.plans) if plan.is_allowed and n not in wanted]
    others.sort(key=lambda n: (not choice.plans[n].is_on_front, -choice.plans[n].compute_ratio))
    return wanted + others[: max(0, most - len(wanted))]


def pack_sample(
    source: pathlib.Path, target: pathlib.Path, requested: list[str], size: int, plan: str
) -> None:
    """Pack a few episodes that have every requested stream; of G1 two of four have no video."""
    how = dict.fromkeys(("format", "mapping", "rate_hz", "streams", "exclude", "episodes"))
    read = to_source(**how, follow_links=False, keep_dtype=False)
    sample = {"source": read, "requested": requested, "max_bytes": size, "plan": plan}
    _core.pack_sample(source, target, sample)


def measure(source: pathlib.Path, args: argparse.Namespace, rows: list[dict[str, object]]) -> None:
    """All cells of one recording."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        first = pathlib.Path(folder) / "first.kino"
        pack_sample(source, first, [], 1, "")
        asked = windows(kinograph.open(first))
        bounds = {"**": "lossless"} if args.lossless else {args.images: "psnr(38)"}
        how = {
            "windows": asked,
            "batch_size": args.batch_size,
            "memory": args.memory,
            "bounds": bounds,
        }
        choice = kinograph.plan(
            source,
            step_s=0.02,
            folder=folder,
            anchor=args.anchor,
            sample=args.sample,
            seconds=args.seconds,
            **how,
        )
        print(choice, flush=True)
        cells = {
            (storage, step_s): choice.what_if(step_s=step_s, storage=given)
            if given
            else choice.what_if(step_s=step_s)
            for storage, given in STORAGE.items()
            for step_s in args.steps_s
        }
        keys = [plan.codecs for plan in choice.plans]
        for number in few(choice, list(cells.values()), args.plans):
            toml = choice.to_toml(plan=number)
            target = pathlib.Path(folder) / f"{number}.kino"
            pack_sample(source, target, list(asked), args.sample, toml)
            options = {**how, "anchor": args.anchor, "images": None}
            options.pop("bounds")
            loader = _to_loader(target, options)
            for (storage, step_s), answer in cells.items():
                own = [plan.codecs for plan in answer.plans].index(keys[number])
                how_core = {"found": answer.to_json(), "plan": own}
                text = _core.plan_verify(loader.order._core, *loader._to_core(), how_core)
                found = json.loads(text)["verified"][-1]
                rows.append(
                    {
                        "recording": source.name,
                        "storage": storage,
                        "step_ms": 1e3 * step_s,
                        "plan": number,
                        "is_chosen": answer.chosen.codecs == keys[number],
                        "predicted": round(found["predicted"], 4),
                        "measured": round(found["measured"], 4),
                        "bytes": round(found["measured_bytes"]),
                    }
                )
                print(rows[-1], flush=True)
            loader.close()


def main() -> None:
    """Measure all recordings, print how close predictions are, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path, nargs="+")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--memory", default="24MB")
    parser.add_argument("--plans", type=int, default=5, help="how many plans to pack and load")
    parser.add_argument("--steps-s", type=float, nargs="+", default=STEPS_S)
    parser.add_argument("--sample", type=int, default=256_000_000, help="decoded bytes")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--anchor", default=None)
    parser.add_argument("--images", default="**", help="streams that may lose: psnr(38)")
    parser.add_argument("--lossless", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path())
    parser.add_argument("--csv", type=pathlib.Path, help="keeps the rows of other recordings")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    for source in args.source:
        measure(source, args, rows)
    errors = [abs(row["predicted"] - row["measured"]) for row in rows]
    close = sum(error <= 0.1 for error in errors)
    print(
        f"{close} of {len(errors)} predictions are within 0.10, the worst is off by {max(errors):.3f}"
    )
    cells = {(row["recording"], row["storage"], row["step_ms"]) for row in rows}
    good = 0
    for cell in sorted(cells):
        here = [row for row in rows if (row["recording"], row["storage"], row["step_ms"]) == cell]
        best = max(row["measured"] for row in here)
        chosen = next((row["measured"] for row in here if row["is_chosen"]), None)
        good += chosen is not None and chosen >= 0.95 * best
        print(*cell, f"chosen {chosen}, best {best}")
    print(f"the choice is within 5 % of the best in {good} of {len(cells)} cells")
    if args.csv:
        write(args.csv, rows)


def write(path: pathlib.Path, rows: list[dict[str, object]]) -> None:
    """Write the rows, beside those of the recordings that were not measured now."""
    measured = {row["recording"] for row in rows}
    kept = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if row["recording"] not in measured]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *rows])


if __name__ == "__main__":
    main()
