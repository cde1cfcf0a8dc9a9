"""Live status of a loader: a table that is redrawn on a terminal, or periodic lines in a log.

batch 1204: 3410 samples/s, waits 0.4 % of the time, 3.0 of 4 batches ready, decode 1.8 threads busy, 512 MB of frames
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TextIO

from kinograph._report import Report


def status(report: Report, before: Report | None = None) -> str:
    """Summarise throughput and waits in one line: since the loader started, or since another report."""
    since = before or Report()
    # A restarted loader counts from zero.
    if since.elapsed_s > report.elapsed_s:
        since = Report()
    seconds = max(report.elapsed_s - since.elapsed_s, 1e-9)
    ready = report.timeline[-1]["ready"] if report.timeline else 0.0
    loads = _loads(report, since, seconds)
    busiest = max(loads, key=lambda name: loads[name], default="decode")
    return (
        f"batch {report.batches}: {(report.samples - since.samples) / seconds:.0f} samples/s, "
        f"waits {(report.wait_s - since.wait_s) / seconds:.1%} of the time, "
        f"{ready:.1f} of {report.prefetch_depth} batches ready, "
        f"{busiest} {loads.get(busiest, 0.0):.1f} threads busy, {report.cache_bytes / 1e6:.0f} MB of frames"
    )


def _loads(report: Report, since: Report, seconds: float) -> dict[str, float]:
    """Average number of busy threads per stage; the loop's wait is not a stage."""
    return {
        stage.name: (stage.busy_s - since._stage(stage.name).busy_s) / seconds
        for stage in report.stages
        if stage.name != "wait"
    }


def table(report: Report, before: Report | None = None) -> list[str]:
    """Format throughput per stage; the number of lines is constant."""
    since = before if before and before.elapsed_s <= report.elapsed_s else Report()
    seconds = max(report.elapsed_s - since.elapsed_s, 1e-9)
    loads = _loads(report, since, seconds)
    lines = [status(report, before), f"{'stage':10}{'threads busy':>14}{'waiting':>10}{'MB/s':>10}"]
    queued = {"fetch": report.reads_queued, "decode": report.work_queued}
    for stage in report.stages:
        if stage.name in loads:
            rate = (stage.bytes - since._stage(stage.name).bytes) / seconds / 1e6
            waiting = str(queued[stage.name]) if stage.name in queued else ""
            lines.append(f"{stage.name:10}{loads[stage.name]:14.2f}{waiting:>10}{rate:10.1f}")
    return lines


class Live:
    """Shows a loader's reports periodically, from its own thread, until the ``with`` block ends."""

    def __init__(
        self, report: Callable[[], Report], every_s: float, file: TextIO | None = None
    ) -> None:
        self._report = report
        self._every_s = every_s
        self._file = file or sys.stderr
        self._ended = threading.Event()
        self._before: Report | None = None
        self._drawn = 0
        self._thread = threading.Thread(target=self._run, name="kino-live", daemon=True)

    def __enter__(self) -> Live:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        # The final report covers the whole run.
        self._before = None
        self._show()

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            self._show()

    def _show(self) -> None:
        report = self._report()
        if self._file.isatty():
            lines = table(report, self._before)
            # Move the cursor back to the first line drawn, and clear from there.
            back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
            self._file.write(back + "\n".join(lines) + "\n")
            self._drawn = len(lines)
        else:
            self._file.write(status(report, self._before) + "\n")
        self._file.flush()
        self._before = report
