"""The PushT study: train policies on compressed frames, roll them out, and keep every outcome.

    python bench/signal/study.py pusht.kino --part first --csv bench/results/signal_pusht.csv

Needs a GPU, gym-pusht and the recording of diffusion_policy packed by Kinograph. What is run, with which settings and how it will be
judged was fixed before: `preregistration.md`. Runs that the CSV has already are skipped, so a part can be done in
several sittings; `--deadline` stops in time. One row per run and mode; `won` has a hexadecimal digit per four
environment seeds.
"""

from __future__ import annotations

import argparse
import pathlib

from parts import PARTS


def main() -> None:
    """Read the options and run a part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", type=pathlib.Path, help="the recording, packed without loss")
    parser.add_argument("--part", choices=PARTS, default="first")
    parser.add_argument(
        "--csv", type=pathlib.Path, required=True, help="results; runs in it are skipped"
    )
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("target/signal/arms"))
    parser.add_argument("--trainers", type=int, default=2, help="policies that train at a time")
    parser.add_argument("--workers", type=int, default=14, help="processes with environments")
    parser.add_argument(
        "--deadline", type=float, default=1e9, help="seconds; no run is begun that would end later"
    )
    parser.add_argument(
        "--steps", type=int, default=7000, help="training steps; fewer only to try it"
    )
    parser.add_argument("--seeds", type=int, default=300, help="environment seeds per mode")
    parser.add_argument("--most", type=int, default=None, help="at most so many runs")
    options = parser.parse_args()
    from sitting import Study  # noqa: PLC0415 (worker processes import this file, and need no torch)

    Study(options).run()


if __name__ == "__main__":
    main()
