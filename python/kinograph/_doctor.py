"""The doctor: does the training loop wait for data, for what, and what would help.

    print(kinograph.doctor("lift.kino", step_s=0.05, windows={"actions": range(8)}, batch_size=64))
    print(kinograph.doctor(loader, step=train))        the loader that trains, and the step itself

``docs/guide/doctor.md`` says what is measured and how the predictions are made.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from kinograph import _core
from kinograph import numpy as _numpy
from kinograph._arguments import to_number
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError
from kinograph._loader import BaseLoader, Trained
from kinograph._loader_options import Images
from kinograph._report import written
from kinograph._samples import WindowSpec


@dataclasses.dataclass(frozen=True)
class Change:
    """Something to change, and what it would bring."""

    how: str
    compute_ratio: float
    gain: float
    batch_s: float
    is_available: bool

    def __str__(self) -> str:
        return (
            f"{self.how}: compute ratio {self.compute_ratio:.3f}, {self.gain:.2f} times the steps"
        )


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What the doctor found; ``print`` shows all of it.

    ``cause`` is one of ``"nothing"``, ``"slow_step"``, ``"storage"``, ``"decode"``, ``"collate"``, ``"hand_over"``, ``"jitter"``,
    ``"memory"`` and ``"cpu_share"``; ``verdict`` is the same in a sentence with figures. ``met`` says whether the target is
    reached. ``changes`` come with the best first, ``evidence`` is everything that was measured.
    """

    cause: str
    verdict: str
    met: bool
    changes: tuple[Change, ...]
    evidence: Mapping[str, Any]
    _json: str = dataclasses.field(repr=False)

    @property
    def compute_ratio(self) -> float:
        """The fraction of the time in which the training loop did not wait."""
        return float(self.evidence["fed"]["compute_ratio"])

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give everything as JSON, and write it to a file if there is one."""
        return written(path, self._json)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give a page with plots, and write it to a file if there is one."""
        return written(path, _core.doctor_html(self._json))

    def __str__(self) -> str:
        return _core.doctor_text(self._json)


def doctor(  # noqa: PLR0913 (each is a keyword of its own)
    dataset: Trained | BaseLoader[Any, Any],
    *,
    step: Callable[[dict[str, Any]], object] | None = None,
    step_s: float | None = None,
    target: float = 0.95,
    seconds: float = 10.0,
    windows: Mapping[str, WindowSpec] | None = None,
    anchor: str | float | None = None,
    batch_size: int | None = None,
    images: Images | Mapping[str, Any] | None = None,
    memory: int | str | None = None,
) -> Diagnosis:
    """Find out whether a training loop waits for data, for what, and what to change.

    >>> found = kinograph.doctor(ds, step_s=0.02, windows={"actions": [0]}, batch_size=8, seconds=0.5)
    >>> found.cause in ("nothing", "slow_step"), found.met
    (True, True)

    Takes the loader you train with, or a dataset. The loop runs with its step; if it waits, the loader runs again
    with stages removed, which takes about five times ``seconds``. A loader keeps its place, but its threads are
    stopped meanwhile.

    :param dataset: A loader, or what a loader takes: a path, a dataset, samples or sources
    :param step: Called with a batch, as in training. It must block until its work is finished, for example by copying
        a result to the host
    :param step_s: Or how long a step takes, in seconds; it is emulated on one core. ``kinograph.profile`` measures it
    :param target: The fraction of the time that the loop should compute
    :param seconds: How long to watch the loop
    :param windows: As for a loader; without it, the frame of every stream at the anchor
    :param anchor: As for a loader
    :param batch_size: As for a loader; 64 by default
    :param images: As for a loader
    :param memory: As for a loader

    For any other option, make the loader and pass it.
    """
    if (step is None) == (step_s is None):
        raise InvalidArgumentError(
            "give exactly one of `step`, a function that trains on a batch, and `step_s`, its time in seconds "
            "(kinograph.profile measures it)"
        )
    if not (step is None or callable(step)):
        raise InvalidArgumentError(f"step is {step!r}; give a function, or its time as `step_s`")
    if isinstance(dataset, BaseLoader):
        made = dataset
        if any(one is not None for one in (windows, anchor, batch_size, images, memory)):
            raise InvalidArgumentError(
                "`windows`, `anchor`, `batch_size`, `images` and `memory` cannot be combined with a loader; give them to the "
                "loader"
            )
    else:
        made = _to_loader(
            dataset,
            {
                "windows": windows,
                "anchor": anchor,
                "batch_size": 64 if batch_size is None else batch_size,
                "images": images,
                "memory": memory,
            },
        )
    # Its threads would compete with those that are measured.
    made.close()

    def trains(arrays: dict[str, Any]) -> object:
        batch = {key: made._to_array(*array) for key, array in arrays.items()}
        return step(batch) if step is not None else None

    how: _core.DoctorArgs = {
        "step": to_number("step_s", step_s) if step is None else trains,
        "target": to_number("target", target),
        "seconds": to_number("seconds", seconds),
    }
    return _from_json(_core.doctor(made.order._core, *made._to_core(), how))


def _from_json(text: str) -> Diagnosis:
    found = json.loads(text)
    names = [field.name for field in dataclasses.fields(Change)]
    return Diagnosis(
        cause=found["verdict"]["cause"],
        verdict=found["verdict"]["sentence"],
        met=found["verdict"]["met"],
        changes=tuple(
            Change(**{name: change[name] for name in names}) for change in found["changes"]
        ),
        evidence=found["evidence"],
        _json=text,
    )


def _to_loader(dataset: Trained, options: dict[str, Any]) -> BaseLoader[Any, Any]:
    if isinstance(dataset, str | os.PathLike):
        dataset = Dataset(dataset)
    if isinstance(dataset, Dataset) and options["windows"] is None:
        anchor = next((name for name in ("actions", "action") if name in dataset.streams), None)
        options["windows"] = {name: [0] for name in dataset.streams}
        options["anchor"] = options["anchor"] or anchor
    return _numpy.Loader(dataset, **options)
