"""The doctor: does the training loop wait for data, for what, and what would help.

    print(kinograph.doctor("lift.kino", step_s=0.05, windows={"actions": range(8)}, batch_size=64))
    print(kinograph.doctor(loader, step=train))        the loader that trains, and the step itself

``docs/guide/doctor.md`` says what is measured and how the predictions are made.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from kinograph import _core
from kinograph import numpy as _numpy
from kinograph._arguments import said_twice, to_number
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError
from kinograph._loader import BaseLoader, Trained


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
        """The part of the time in which the training loop did not wait."""
        return float(self.evidence["fed"]["compute_ratio"])

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give everything as JSON, and write it to a file if there is one."""
        return _written(self._json, path)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give a page with plots, and write it to a file if there is one."""
        return _written(_core.doctor_html(self._json), path)

    def __str__(self) -> str:
        return _core.doctor_text(self._json)


def doctor(
    dataset: Trained | BaseLoader[Any],
    *,
    step: Callable[[dict[str, Any]], object] | None = None,
    step_s: float | None = None,
    target: float = 0.95,
    seconds: float = 10.0,
    **loader: Any,  # noqa: ANN401 (the words of the loader)
) -> Diagnosis:
    """Find out whether a training loop waits for data, for what, and what to change.

    >>> found = kinograph.doctor(ds, step_s=0.02, windows={"actions": [0]}, batch_size=8, seconds=0.5)
    >>> found.cause in ("nothing", "slow_step"), found.met
    (True, True)

    Takes a loader, or what a loader is made of; without windows every stream is read, the frame at the anchor. The loop is
    run with its step, and where it waits, the loader is run in parts: about five times ``seconds``. A loader that is given
    stands where it stood, but its threads are ended meanwhile.

    :param step: called with a batch, as in training. It has to end when its work is done: read a result back from a device.
    :param step_s: or how long a step takes, in seconds; it is emulated on one core.
    :param target: the part of the time in which the loop is to compute.
    :param seconds: how long the loop is watched.
    :param loader: the words of ``kinograph.numpy.Loader``.
    """
    if (step is None) == (step_s is None):
        raise InvalidArgumentError(
            "give `step`, a function that trains on a batch, or `step_s`, its time in seconds; one of them"
        )
    if not (step is None or callable(step)):
        raise InvalidArgumentError(f"step is {step!r}; give a function, or the time as `step_s`")
    made = _to_loader(dataset, loader)
    # Its threads would compete with those that are measured.
    made.close()

    def trains(arrays: dict[str, Any]) -> object:
        batch = {key: made._to_array(*array) for key, array in arrays.items()}
        return step(batch) if step is not None else None

    how = to_number("step_s", step_s) if step is None else trains
    limits = to_number("target", target), to_number("seconds", seconds)
    return _from_json(_core.doctor(made.order._core, *made._to_core(), (how, *limits)))


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


def _to_loader(dataset: Trained | BaseLoader[Any], words: dict[str, Any]) -> BaseLoader[Any]:
    if isinstance(dataset, BaseLoader):
        if words:
            raise said_twice(words)
        return dataset
    if isinstance(dataset, str | os.PathLike):
        dataset = Dataset(dataset)
    if isinstance(dataset, Dataset) and not words.keys() & _WINDOW_WORDS:
        anchor = next((name for name in ("actions", "action") if name in dataset.streams), None)
        words = {"anchor": anchor, **words, "windows": {name: [0] for name in dataset.streams}}
    return _numpy.Loader(dataset, **({"batch_size": 64} | words))


# Words that say what a sample is.
_WINDOW_WORDS = {"windows", "delta_timestamps", "seq_length", "frame_stack", "keys"}


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        pathlib.Path(path).write_text(text, encoding="utf-8")
    return text
