"""What `signal(…)` bounds become: `python bench/signal/bounds.py pusht.kino --percent 2 10 20 --input img --input state=0,1`.

Asks `kinograph.plan` for every bound on the streams that match `--bound` (all by default), stores the recording as it was chosen, and writes a
row per stream: the codec, its bytes beside those of lossless, and what the probe measured. The recording is packed without loss.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import tempfile
import time

import kinograph

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
FIELDS = [
    "recording",
    "bound",
    "stream",
    "codec",
    "frame_bytes",
    "lossless_frame_bytes",
    "increase",
    "low",
    "high",
    "steps",
    "dataset_bytes",
    "lossless_dataset_bytes",
    "episodes",
    "frames",
    "expected_s",
    "took_s",
    "reason",
]


def chosen(texts: list[str]) -> dict[str, list[int] | None]:
    """Read streams, or streams and their elements, such as `state=0,1`."""
    parts = [text.partition("=") for text in texts]
    return {
        stream: [int(one) for one in elements.split(",")] if elements else None
        for stream, _, elements in parts
    }


def stored_bytes(path: str | pathlib.Path) -> int:
    """Give the bytes of all streams of a dataset."""
    return sum(stream.bytes for stream in kinograph.open(path).streams.values())


def choose(recording: str, percent: float, options: argparse.Namespace) -> list[dict[str, object]]:
    """Choose a plan with this bound, store the recording with it, and give a row per stream."""
    began = time.perf_counter()
    probe: kinograph._probe_options.ProbeOptions = {"seconds": options.seconds}
    if options.input:
        probe["inputs"] = chosen(options.input)
    if options.target:
        probe["targets"] = chosen(options.target)
    found = kinograph.plan(
        recording,
        step_s=0.1,
        bounds=dict.fromkeys(options.bound or ["**"], f"signal({percent:g}%)"),
        probe=probe,
        seconds=0.5,
    )
    print(found)
    measured = json.loads(found.to_json())["measured"]["signal"]
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "chosen.kino"
        kinograph.repack(recording, target, plan=found)
        stored = stored_bytes(target)
        kept = {name: one.signal for name, one in kinograph.open(target).streams.items()}
    rows = []
    for one in found.signal_bounds:
        evidence = one.evidence or {}
        # What the planner stores lossily has its evidence in the dataset.
        is_lossy = one.codec == found.codecs[one.stream]
        assert (kept[one.stream] == one.evidence) or not is_lossy
        rows.append(
            {
                "recording": pathlib.Path(recording).stem,
                "bound": f"signal({percent:g}%)",
                "stream": one.stream,
                "codec": one.codec or "lossless",
                "frame_bytes": f"{one.frame_bytes:.1f}",
                "lossless_frame_bytes": f"{one.lossless_frame_bytes:.1f}",
                "increase": evidence.get("increase", ""),
                "low": evidence.get("low", ""),
                "high": evidence.get("high", ""),
                "steps": sum(step["stream"] == one.stream for step in measured["looked"]),
                "dataset_bytes": stored,
                "lossless_dataset_bytes": stored_bytes(recording),
                "episodes": measured["effort"]["episodes"],
                "frames": measured["effort"]["anchors"],
                "expected_s": f"{measured['effort']['expected_s']:.0f}",
                "took_s": f"{measured['effort']['took_s']:.0f}",
                "reason": one.reason,
            }
        )
    print(f"{time.perf_counter() - began:.0f} s in all, {stored} bytes stored")
    return rows


def main() -> None:
    """Read the options, choose, and append to the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", help="a dataset that was packed without loss")
    parser.add_argument("--percent", type=float, nargs="+", default=[2.0])
    parser.add_argument("--bound", action="append", help="a pattern of streams that may lose")
    parser.add_argument("--input", action="append", default=[], help="as for `kinograph probe`")
    parser.add_argument("--target", action="append", default=[], help="as for `kinograph probe`")
    parser.add_argument("--seconds", type=float, default=180.0, help="the probe's budget")
    parser.add_argument("--csv", type=pathlib.Path, default=RESULTS / "signal_bounds.csv")
    options = parser.parse_args()
    is_new = not options.csv.exists()
    for percent in options.percent:
        rows = choose(options.recording, percent, options)
        with options.csv.open("a", newline="") as out:
            writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
            if is_new:
                writer.writeheader()
            is_new = False
            writer.writerows(rows)


if __name__ == "__main__":
    main()
