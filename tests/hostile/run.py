"""Runs the hostile cases and prints what each one cost; exit code 1 if one broke a rule.

python tests/hostile/run.py [AREA ...] [-k TEXT] [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import harness  # noqa: E402


def load() -> list[harness.Case]:
    """Every case, from every file of cases in this folder."""
    for path in sorted(HERE.glob("cases_*.py")):
        importlib.import_module(path.stem)
    return harness.CASES


def main() -> int:
    """Runs as the command line requests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("areas", nargs="*", metavar="AREA")
    parser.add_argument(
        "-k", default="", metavar="TEXT", help="only cases whose name contains TEXT"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table as CSV")
    chosen = parser.parse_args()
    cases = [
        case
        for case in load()
        if (not chosen.areas or case.area in chosen.areas) and chosen.k in case.name
    ]
    rows, failed = [], 0
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="kino-hostile-") as folder:
            outcome, wrong = harness.attack(case, Path(folder))
            limit = harness.cpu_limit_s(harness.size(Path(folder)))
        if outcome.cpu_s > limit:
            wrong.append(f"{outcome.cpu_s:.1f} s of CPU, the limit for its size is {limit:.1f} s")
        failed += bool(wrong)
        row = (
            case.area,
            case.name,
            outcome.code,
            f"{outcome.peak_bytes / harness.MIB:.0f}",
            f"{outcome.cpu_s:.2f}",
            "; ".join(wrong),
        )
        rows.append(row)
        print("{:<9} {:<44} {:>3} {:>6} MiB {:>6} s  {}".format(*row), flush=True)
    if chosen.csv:
        with chosen.csv.open("w", newline="") as file:
            csv.writer(file).writerows(
                [("area", "case", "exit", "peak_mib", "cpu_s", "wrong"), *rows]
            )
    print(
        f"{len(rows) - failed} of {len(rows)} cases passed; the command alone takes {harness.base_bytes() / harness.MIB:.0f} MiB"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
