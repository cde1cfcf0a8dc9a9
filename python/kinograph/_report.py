"""The report of a loader and its training loop: a table, an HTML page with plots, or JSON.

    core (stages, bytes, frames, memory) ──┐
    Loop (waits, steps, compute) ──────────┴──► Report ──► print, to_html, to_json, a notebook

docs/reference/report.md explains each figure.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any

from kinograph import _core
from kinograph._gpu_decode import GpuDecode
from kinograph._idle import GpuPrice, Idle
from kinograph._loop import LoopReport
from kinograph._quality import ShuffleQuality

# A loop that waits for less than this fraction of its time has nothing to gain from a faster loader.
_NEGLIGIBLE = 0.01


@dataclasses.dataclass(frozen=True)
class Stage:
    """Time, tasks and bytes of one stage of the loader."""

    name: str
    busy_s: float
    tasks: int
    bytes: int


class Shown:
    """Measurements that can be shown as text, HTML or JSON."""

    def _measured(self) -> dict[str, Any]:
        raise NotImplementedError

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return all figures as JSON, and write them to ``path`` if given."""
        return written(path, json.dumps(self._measured(), indent=1))

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return a self-contained HTML page with tables and plots, and write it to ``path`` if given."""
        return written(path, _core.report_html(json.dumps(self._measured()), True))

    def _repr_html_(self) -> str:
        return _core.report_html(json.dumps(self._measured()), False)


@dataclasses.dataclass(frozen=True)
class Report(Shown):
    """Where a loader's time went; ``print`` shows a table, a notebook shows plots.

    >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
    >>> for batch in loader:
    ...     with loader.compute():
    ...         pass
    >>> report = loader.report()
    >>> report.batches, report.loop.is_marked, report.read_amplification >= 1
    (12, True, True)
    >>> page = report.to_html()

    Times of stages are summed over all threads. ``wait`` is how long the training loop was blocked waiting for a
    batch. ``prefetch_depth`` is how many batches are prepared ahead; ``prefetch_changes`` lists (first batch, depth).
    Of a remote dataset ``readers_active`` is how many reads may be under way; ``readers_changes`` lists (seconds, reads).
    ``batch_s`` is how long the loader takes per batch, ``step_s`` how long the training loop takes per batch.
    ``quality`` is how well the shuffle mixes, and how often frames are expected to be decoded.
    ``waits`` and ``timeline`` are measured by the core. With a device, the core's caller is the thread that copies to
    it; ``loop`` always describes the training loop.
    ``idle`` says whether the training loop waits so much that it is an alarm (a compute ratio below 0.85), and what
    that costs if the report was given a price.
    """

    elapsed_s: float = 0.0
    batches: int = 0
    samples: int = 0
    frames_decoded: int = 0
    frames_used: int = 0
    stored_bytes_used: int = 0
    substituted: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    reads_queued: int = 0
    work_queued: int = 0
    cache_bytes: int = 0
    cache_peak_bytes: int = 0
    stored_bytes: int = 0
    stored_peak_bytes: int = 0
    stored_kept_bytes: int = 0
    stored_hits: int = 0
    batch_buffer_bytes: int = 0
    process_bytes: int | None = None
    process_peak_bytes: int | None = None
    depth: int = 0
    prefetch_depth: int = 0
    prefetch_changes: tuple[tuple[int, int], ...] = ()
    batch_s: float = 0.0
    step_s: float = 0.0
    threads_active: int = 0
    readers_active: int = 0
    readers_changes: tuple[tuple[float, int], ...] = ()
    waits: dict[str, Any] = dataclasses.field(default_factory=dict)
    timeline: tuple[dict[str, float], ...] = ()
    stages: tuple[Stage, ...] = ()
    loop: LoopReport = dataclasses.field(default_factory=LoopReport)
    quality: ShuffleQuality | None = None
    idle: Idle = dataclasses.field(default_factory=Idle)
    #: What was decoded on the GPU; `None` if nothing is (the option `decode`).
    gpu_decode: GpuDecode | None = None
    #: By URL, what was read of each remote dataset since it was opened (:attr:`kinograph.Dataset.storage`).
    storage: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def wait_s(self) -> float:
        """Seconds that the training loop waited for batches."""
        return self._stage("wait").busy_s

    @property
    def compute_ratio(self) -> float:
        """The fraction of time that the training loop computed; without compute marks, that it did not wait."""
        if self.loop.is_marked:
            return self.loop.compute_ratio
        return 1 - self.wait_s / self.elapsed_s if self.elapsed_s else 1.0

    @property
    def utilisation(self) -> float:
        """Accelerator utilisation by MLPerf Storage's formula: compute time / elapsed time, without the first step."""
        return self.loop.utilisation

    @property
    def read_amplification(self) -> float:
        """Bytes read per stored byte that was decoded; 0 before the first."""
        return _ratio(self._stage("fetch").bytes, self.stored_bytes_used)

    @property
    def decode_amplification(self) -> float:
        """Frames decoded per frame in a batch; below 1 if samples share frames, 0 before the first."""
        return _ratio(self.frames_decoded, self.frames_used)

    @property
    def verdict(self) -> str:
        """The conclusion in one sentence."""
        if not self.loop.steps:
            return "No step has ended yet."
        waited = _waited(self.loop)
        if waited < _NEGLIGIBLE:
            return (
                f"The loop waits for {waited:.1%} of its time: a faster loader would gain nothing."
            )
        made = [stage for stage in self.stages if stage.name != "wait"]
        busiest = max(made, key=lambda stage: stage.busy_s, default=Stage("none", 0.0, 0, 0))
        threads = busiest.busy_s / self.elapsed_s if self.elapsed_s else 0.0
        return (
            f"The loop waits for {waited:.1%} of its time; the loader's busiest stage is `{busiest.name}` "
            f"({threads:.1f} of {self._threads_of(busiest.name)} threads busy)."
        )

    @classmethod
    def of(
        cls,
        core: dict[str, Any],
        loop: LoopReport,
        quality: ShuffleQuality | None = None,
        price: GpuPrice | None = None,
    ) -> Report:
        """Combine the measurements of the core and the loop."""
        names = {field.name for field in dataclasses.fields(cls)}
        names -= {"loop", "quality", "idle", "storage", "gpu_decode"}
        values = {name: value for name, value in core.items() if name in names}
        values["stages"] = tuple(
            Stage(stage["stage"], stage["busy_s"], stage["tasks"], stage["bytes"])
            for stage in core.get("stages", [])
        )
        changes = core.get("prefetch_changes", [])
        values["prefetch_changes"] = tuple((batch, depth) for batch, depth in changes)
        widths = core.get("readers_changes", [])
        values["readers_changes"] = tuple((at_s, readers) for at_s, readers in widths)
        values["timeline"] = tuple(core.get("timeline", []))
        idle = (price or GpuPrice()).idle(loop)
        return cls(**values, loop=loop, quality=quality, idle=idle)

    def _stage(self, name: str) -> Stage:
        found = (stage for stage in self.stages if stage.name == name)
        return next(found, Stage(name, 0.0, 0, 0))

    def _threads_of(self, stage: str) -> int:
        return {"schedule": 1, "fetch": self.readers_active}.get(stage, self.threads_active)

    def _measured(self) -> dict[str, Any]:
        loader = dataclasses.asdict(self)
        loop = loader.pop("loop")
        del loader["idle"], loader["storage"], loader["gpu_decode"]
        for stage in loader["stages"]:
            stage["stage"] = stage.pop("name")
        return {
            "title": "Kinograph loader",
            "verdict": self.verdict,
            "idle": self.idle.to_dict(),
            "loop": loop,
            "loader": loader,
        }

    def __str__(self) -> str:
        samples = max(self.samples, 1)
        lines = [
            f"{self.samples} samples in {self.batches} batches, {self.elapsed_s:.2f} s; "
            f"the training loop waited {self.wait_s:.2f} s (compute ratio {self.compute_ratio:.3f})",
            f"{'stage':10}{'seconds':>10}{'µs/sample':>12}{'tasks':>10}{'MB':>10}",
        ]
        lines += [
            f"{stage.name:10}{stage.busy_s:10.3f}{stage.busy_s * 1e6 / samples:12.1f}"
            f"{stage.tasks:10}{stage.bytes / 1e6:10.1f}"
            for stage in self.stages
        ]
        used = self.frames_used / max(self.frames_decoded, 1)
        lines.append(
            f"{self.frames_decoded} frames decoded, each used {used:.1f} times; "
            f"{self.read_amplification:.2f} bytes read per stored byte decoded; "
            f"decoded frames used up to {self.cache_peak_bytes / 1e6:.0f} MB"
        )
        if self.stored_kept_bytes:
            lines.append(
                f"{self.stored_kept_bytes / 1e6:.0f} MB of stored pages stay in memory: {self.stored_hits} reads saved"
            )
        lines.append(
            f"a batch takes {self.batch_s * 1e3:.1f} ms, a step {self.step_s * 1e3:.1f} ms: "
            f"{self.prefetch_depth} batches ahead, {self.threads_active} decoding and {self.readers_active} reading threads"
        )
        if self.quality is not None:
            lines.append(f"{self.quality.shuffle}: {self.quality}")
        lines += [line for url, read in self.storage.items() for line in storage_lines(url, read)]
        lines += table_of(self.loop)
        return "\n".join([*lines, self.verdict, *self.idle._lines])


def storage_lines(url: str, read: dict[str, Any]) -> list[str]:
    """Say in lines what was read of a remote dataset."""
    fetched, used = read["bytes_read"], read["used_bytes"]
    lines = [
        f"{url}: {read['gets']} GETs, {fetched / 1e6:.1f} MB fetched, {_ratio(fetched, used):.2f} per byte used; "
        f"first byte after {read['first_byte_s'] * 1e3:.0f} ms (95 %: {read['first_byte_p95_s'] * 1e3:.0f}); "
        f"{read['retried']} repeated, {read['hedges']} sent twice, of these {read['hedges_wasted']} for nothing"
    ]
    if (cache := read["cache"]) is not None:
        asked = cache["hit_bytes"] + cache["missed_bytes"]
        lines.append(
            f"{cache['folder']}: {_ratio(cache['hit_bytes'], asked):.1%} of the bytes came from it; it has "
            f"{cache['used_bytes'] / 1e6:.0f} of {cache['limit_bytes'] / 1e6:.0f} MB"
        )
        lines += [cache["stopped"]] if cache["stopped"] else []
    return lines


def table_of(loop: LoopReport) -> list[str]:
    """Format a loop's times as lines; empty before its second step."""
    if loop.steps < 2:
        return []
    lines = [f"{'per step':10}{'mean ms':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'longest':>10}"]
    for name, spread in (("wait", loop.wait), ("compute", loop.compute), ("step", loop.step)):
        times = dataclasses.astuple(spread)
        lines.append(f"{name:10}" + "".join(f"{seconds * 1e3:10.2f}" for seconds in times))
    marked = f"marked, timed by the {loop.clock} clock" if loop.is_marked else "not marked"
    stalls, stall_s = loop.waits.get("stalls", 0), loop.waits.get("stall_s", 0.0)
    lines.append(
        f"utilisation {loop.utilisation:.3f} without the first step (compute {marked}); "
        f"{stalls} stalls, {stall_s:.2f} s; first batch after {loop.waits.get('first_s', 0.0):.2f} s"
    )
    return lines


def _waited(loop: LoopReport) -> float:
    """Compute the fraction of time that the loop waited, without the first step if there were others."""
    if loop.steps > 1:
        return _ratio(loop.wait.mean_s, loop.step.mean_s)
    return _ratio(loop.wait_s, loop.elapsed_s)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def written(path: str | os.PathLike[str] | None, text: str) -> str:
    """Return the text, and write it to a file if there is one."""
    if path is not None:
        pathlib.Path(path).write_text(text, encoding="utf-8")
    return text
