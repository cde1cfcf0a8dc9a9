"""The doctor for a loader that is not ours: a torch ``DataLoader``, or any iterable of batches.

    1  the loop with its step                   does it wait?
    2  the loader alone, then with stages taken away: files in the page cache, items ready, batches ready,
       half of the batch, more workers         which stage?
    3  the loop over one batch, again and again     does the waiting end?

This file only measures. ``kino_advisor/src/doctor/foreign/`` derives the verdict and the changes from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kinograph import _core
from kinograph._errors import InvalidArgumentError
from kinograph._idle import GpuPrice
from kinograph._loop import LoopReport
from kinograph._profile import Profile
from kinograph._trial import Examined, Made, Trial, to_subject

Step = Callable[[Any], object]

# The fewest batches to count, and the fewest rounds of all workers, however long they take.
_LEAST, _ROUNDS = 4, 3


@dataclasses.dataclass(frozen=True)
class Examination:
    """What to measure: the step, for how long, and what else to compare with."""

    #: ``None`` emulates a step of ``step_s``.
    step: Step | None
    step_s: float | None
    target: float
    seconds: float
    device: object
    files: Sequence[pathlib.Path]
    price: GpuPrice
    #: A Kinograph loader, its name, and whether it is run with the step itself.
    kinograph: tuple[Iterable[Any], str, bool] | None = None


def examine(subject: Examined, how: Examination) -> str:
    """Measure a loader; returns the diagnosis as JSON."""
    evidence = _Examiner(subject, how).evidence()
    return _core.doctor_foreign(json.dumps(evidence), how.price.per_hour, how.price.gpus)


class _Examiner:
    def __init__(self, subject: Examined, how: Examination) -> None:
        self._subject = subject
        self._how = how
        # The first batch, which the next first pass begins with.
        self._next = 0
        self._start_s = 0.0
        self._batch: Any = None

    def evidence(self) -> dict[str, Any]:
        how, subject = self._how, self._subject
        load = os.getloadavg()[0]
        dropped = self._drop()
        fed = self._fed(Trial(), how.step or _emulated(how.step_s or 0.0))
        nothing = self._nothing()
        step_s = how.step_s or nothing.compute.p50_s
        dropped = self._drop()
        is_first = subject.drawn is not None and self._next < subject.drawn
        whole_trial = Trial(first=self._next)
        whole, taken = self._free(whole_trial)
        looped = self._looped(fed, step_s)
        evidence = {
            "step_s": step_s,
            "target": how.target,
            "setting": subject.setting()
            | {
                "batch": subject.samples or _len(self._batch),
                "batch_bytes": sum(_bytes(self._batch)),
                "pickled_bytes": _bytes(self._batch)[1],
                "is_first_pass": is_first or dropped > 0,
                "dropped_bytes": dropped,
                "clock": fed.clock,
                "cores": _cores(),
                "load": load,
            },
            "start_s": self._start_s,
            "fed": looped,
            "whole": whole,
            "without": None,
            "kinograph": None,
        }
        if looped["compute_ratio"] < how.target:
            again = dataclasses.replace(whole_trial, batches=taken)
            evidence["without"] = self._take_apart(again) | {
                "nothing": self._looped(nothing, step_s)
            }
        if how.kinograph is not None:
            evidence["kinograph"] = self._kinograph(how.kinograph, step_s)
        return evidence

    def _take_apart(self, again: Trial) -> dict[str, Any]:
        """Run the loader with one more stage taken away each time."""
        subject = self._subject
        if subject.setting()["kind"] == "batches":
            return {}
        runs: dict[str, Any] = {}
        if subject.drawn is not None or self._how.files:
            runs["without_fetch"] = self._free(again)[0]
        runs["without_dataset"] = self._free(Trial(ready="items"))[0]
        runs["without_collate"] = self._free(Trial(ready="batches"))[0]
        self._drop()
        now = subject.num_workers
        workers = 2 * now if now else max(1, min(4, _cores() - 1))
        more, _ = self._free(Trial(first=self._next, num_workers=workers))
        runs["more_workers"] = {"num_workers": workers, "run": more}
        if (subject.samples or 0) >= 2:
            self._drop()
            runs["half_batch"] = self._free(Trial(first=self._next, is_half=True))[0]
        if str(self._how.device).startswith("cuda") and not subject.setting()["pin_memory"]:
            step = self._how.step or _emulated(self._how.step_s or 0.0)
            pinned = self._fed(Trial(first=self._next, pin_memory=True), step)
            runs["pinned"] = self._looped(pinned, pinned.compute.p50_s)
        return runs

    def _fed(self, trial: Trial, step: Step) -> LoopReport:
        """Run the loop with its step."""
        began = time.perf_counter()
        with contextlib.closing(self._subject.batches(trial)) as batches:
            first, _ = next(batches)
            if self._batch is None:
                self._start_s = time.perf_counter() - began
                self._batch = first
            step(_shallow(first))
            # Workers that start together deliver together: count whole rounds of them.
            round_ = max(self._subject.num_workers, 1)
            taken = 1 + _skip(batches, round_ - 1, step)
            report = _loop(
                (batch for batch, _ in batches), step, self._how, self._how.seconds, round_
            )
        self._next += taken + report.steps
        return report

    def _nothing(self) -> LoopReport:
        """Run the loop over one batch, again and again."""
        how = self._how
        step = how.step or _emulated(how.step_s or 0.0)
        batches = map(_shallow, itertools.repeat(self._batch))
        return _loop(batches, step, how, how.seconds / 4, 1)

    def _free(self, trial: Trial) -> tuple[dict[str, Any], int]:
        """Run the loader alone; returns the run, and how many batches it took."""
        workers = self._subject.num_workers if trial.num_workers is None else trial.num_workers
        round_ = max(workers, 1)
        # The first batch of each worker is made, however ready the rest is.
        warm = round_ * (2 if trial.ready else 1)
        counted: list[Made] = []
        samples: list[int] = []
        with contextlib.closing(self._subject.batches(trial)) as batches:
            _skip(batches, warm, None)

            def counting() -> Iterator[None]:
                for batch, made in batches:
                    samples.append(_len(batch) or 0)
                    if made is not None:
                        counted.append(made)
                    yield None

            cpu_s = time.process_time()
            report = _loop(counting(), None, self._how, self._how.seconds / 2, round_)
            cpu_s = time.process_time() - cpu_s
        if trial.ready is None and trial.batches is None:
            self._next = max(self._next, trial.first + warm + report.steps)
        # A batch whose arrays do not agree has an unknown number of samples.
        mean = statistics.fmean(samples) if samples and all(samples) else 0.0
        return _free_run(report, counted, cpu_s) | {"samples": mean}, warm + report.steps

    def _looped(self, report: LoopReport, step_s: float) -> dict[str, Any]:
        """Describe a loop; a GPU's own clock knows best whether it waited."""
        waited = report.wait.mean_s / report.step.mean_s if report.step.mean_s else 0.0
        setting = self._subject.setting()
        return {
            "steps": report.steps,
            "compute_ratio": report.utilisation if report.clock != "cpu" else 1 - waited,
            "utilisation": min(1.0, step_s / report.step.mean_s) if report.step.mean_s else 1.0,
            "waits_s": [moment["wait_s"] for moment in report.recent],
            "step_s": report.compute.mean_s,
            "prefetch": setting["num_workers"] * (setting["prefetch_factor"] or 0),
        }

    def _kinograph(self, given: tuple[Iterable[Any], str, bool], step_s: float) -> dict[str, Any]:
        """Run a Kinograph loader in the same loop."""
        loader, name, has_own_step = given
        how = self._how
        step = how.step if has_own_step and how.step is not None else _emulated(step_s)
        other = _Examiner(to_subject(loader), dataclasses.replace(how, files=[]))
        self._drop()
        fed = other._fed(Trial(), step)
        whole, _ = other._free(Trial(first=other._next))
        return {
            "loader": name,
            "batch": other._subject.samples or _len(other._batch) or 0,
            "is_step_emulated": step is not how.step,
            "fed": other._looped(fed, step_s),
            "whole": whole,
        }

    def _drop(self) -> int:
        """Drop the named files from the page cache; returns their bytes."""
        dropped = 0
        for path in self._how.files:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                dropped += os.fstat(file.fileno()).st_size
        return dropped


def _loop(
    batches: Iterator[Any], step: Step | None, how: Examination, seconds: float, round_: int
) -> LoopReport:
    """Measure a loop for so long, but at least some rounds; without a step, its steps are the batches."""
    # The first step of a profile is not in its means.
    least = 1 + round_ * max(_ROUNDS, -(-_LEAST // round_))
    device = how.device if step is not None else None
    profile: Profile[Any] = Profile(batches, device=device)
    began = time.perf_counter()
    for steps, batch in enumerate(profile, 1):
        if step is not None:
            with profile.compute():
                step(batch)
        is_late = time.perf_counter() - began >= seconds
        if steps >= least and (steps - 1) % round_ == 0 and is_late:
            break
    # A GPU may not have come to the last marks yet.
    while (report := profile.report()).pending:
        time.sleep(0.001)
    return report


def _free_run(report: LoopReport, counted: Sequence[Made], cpu_s: float) -> dict[str, Any]:
    batches = max(report.steps, 1)

    def typical(values: Iterable[float]) -> float:
        return statistics.median(values) if counted else 0.0

    others = sum(made.cpu_s for made in counted if made.process != os.getpid())
    return {
        "batches": report.steps,
        "taken": report.steps,
        "batch_s": report.step.mean_s,
        "each_s": [moment["step_s"] for moment in report.recent],
        "fetch_s": typical(made.blocked_s for made in counted),
        "decode_s": typical(made.computing_s for made in counted),
        "collate_s": typical(made.collate_s for made in counted),
        "cpu_s": (cpu_s + others) / batches,
        "fetch_bytes": sum(made.read_bytes for made in counted) / batches,
    }


def _skip(batches: Iterator[tuple[Any, Made | None]], count: int, step: Step | None) -> int:
    for batch, _ in itertools.islice(batches, count):
        if step is not None:
            step(batch)
    return count


def _emulated(step_s: float) -> Step:
    """Make a step that keeps a core busy, as a training loop does, but not the interpreter."""

    def step(_batch: object) -> None:
        end = time.perf_counter() + step_s
        while time.perf_counter() < end:
            time.sleep(0)

    return step


def _shallow(batch: Any) -> Any:  # noqa: ANN401 (a batch of any form)
    """Copy the containers of a batch: a step may take out what it has used."""
    if type(batch) is dict:
        return {key: _shallow(value) for key, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(_shallow(value) for value in batch)
    return batch


def _leaves(batch: Any) -> Iterator[Any]:  # noqa: ANN401 (a batch of any form)
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, tuple | list):
        for value in batch:
            yield from _leaves(value)
    else:
        yield batch


def _bytes(batch: Any) -> tuple[int, int]:  # noqa: ANN401 (a batch of any form)
    """Count the bytes of a batch that are in tensors, and those that are not."""
    torch = sys.modules.get("torch")
    shared = pickled = 0
    for leaf in _leaves(batch):
        size = getattr(leaf, "nbytes", None)
        size = (
            size
            if isinstance(size, int)
            else len(leaf)
            if isinstance(leaf, bytes | bytearray | str)
            else 8
        )
        if torch is not None and isinstance(leaf, torch.Tensor):
            shared += size
        else:
            pickled += size
    return shared, pickled


def _len(batch: Any) -> int | None:  # noqa: ANN401 (a batch of any form)
    """Count the samples of a batch by the first dimension of its arrays, if they agree."""
    shapes = (getattr(leaf, "shape", None) for leaf in _leaves(batch))
    lengths = {int(shape[0]) for shape in shapes if shape}
    return lengths.pop() if len(lengths) == 1 else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def to_files(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None,
) -> list[pathlib.Path]:
    """Take files and folders."""
    if files is None:
        return []
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    found: list[pathlib.Path] = []
    for path in map(pathlib.Path, given):
        if not path.exists():
            raise InvalidArgumentError(f"files names {path}, which does not exist")
        inside = path.rglob("*") if path.is_dir() else [path]
        found += [one for one in inside if one.is_file()]
    return found


@contextlib.contextmanager
def kept_random(loader: object) -> Iterator[None]:
    """Restore every random state: Python's, numpy's, torch's, and those of the loader and its samplers."""
    torch = sys.modules.get("torch")
    samplers = [getattr(loader, name, None) for name in ("sampler", "batch_sampler")]
    samplers.append(getattr(samplers[1], "sampler", None))
    python, legacy = random.getstate(), np.random.get_state()
    restore: list[tuple[Callable[[Any], object], Any]] = []
    if torch is not None:
        restore.append((torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_initialized():
            restore.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
        for holder in (loader, *samplers):
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator):
                restore.append((generator.set_state, generator.get_state()))
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        for put_back, state in restore:
            put_back(state)
