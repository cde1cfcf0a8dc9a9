"""A trace of what each thread did when, as a file for Perfetto (ui.perfetto.dev) or chrome://tracing.

    training loop   ▐wait▌▐══ compute ══▌▐wait▌
    kino-schedule     ▐schedule▌
    kino-read 4          ▐fetch▌▐fetch▌
    kino-decode 7             ▐decode▌▐collate▌

The newest 262,144 events of the loader's threads and 65,536 of the training loop are kept. Compute is drawn where the
CPU submitted it; a GPU may execute it later.
"""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections import deque
from typing import Any

from kinograph import _core

# How many events of the training loop are kept.
_EVENTS = 1 << 16

# The training loop's thread id; the core's ids start at 1.
_LOOP = 0


class Tracing:
    """Collects the events of a loader's cores, one after the other, and of its training loop."""

    def __init__(self) -> None:
        self._began_ns = time.perf_counter_ns()
        #: Spans of the training loop, which the loop appends: name, start, end.
        self.spans: deque[tuple[str, float, float]] = deque(maxlen=_EVENTS)
        self._threads: dict[int, str] = {_LOOP: "training loop"}
        self._events: list[dict[str, Any]] = []
        self._lost = 0
        # The offset from the core's clock to this one.
        self._moved_ns = 0

    def begin(self, core: _core.Loader) -> None:
        """Make a core record its events."""
        self._moved_ns = time.perf_counter_ns() - core.start_trace()

    def collect(self, core: _core.Loader, caller: str | None) -> None:
        """Take a core's events; ``caller`` names the thread that requests batches, if not the training loop's."""
        log = json.loads(core.finish_trace())
        self._lost += log["lost"]
        names = {int(thread): name for thread, name in log["threads"].items()}
        for event in log["events"]:
            name = names[event["thread"]]
            if name == "caller" and caller is None:
                # The training loop's own span of this wait is kept instead: it also contains Python's overhead.
                continue
            self._threads[event["thread"]] = caller if name == "caller" and caller else name
            start_ns = event["start_ns"] + self._moved_ns
            self._add(event["name"], event["thread"], start_ns, event["len_ns"], event["bytes"])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file."""
        for name, start, end in self.spans:
            self._add(name, _LOOP, int(start * 1e9), int((end - start) * 1e9), 0)
        pid = os.getpid()
        names = [("process_name", _LOOP, "kinograph")]
        names += [("thread_name", thread, name) for thread, name in sorted(self._threads.items())]
        heads = [
            {"ph": "M", "name": what, "pid": pid, "tid": thread, "args": {"name": name}}
            for what, thread, name in names
        ]
        trace = {
            "traceEvents": heads + [event | {"pid": pid} for event in self._events],
            "displayTimeUnit": "ms",
            "otherData": {"events_lost": self._lost},
        }
        pathlib.Path(path).write_text(json.dumps(trace), encoding="utf-8")

    def _add(self, name: str, thread: int, start_ns: int, len_ns: int, size: int) -> None:
        # An event that began before the trace is drawn from the start of the trace.
        end_ns = start_ns + len_ns
        start_ns = max(start_ns, self._began_ns)
        if end_ns < start_ns:
            return
        self._events.append(
            {
                "ph": "X",
                "name": name,
                "cat": "kinograph",
                "tid": thread,
                "ts": (start_ns - self._began_ns) / 1e3,
                "dur": (end_ns - start_ns) / 1e3,
                "args": {"bytes": size} if size else {},
            }
        )
