"""The doctor: does the training loop wait for data, for what, and what would help.

    print(kinograph.doctor("lift.kino", step_s=0.05, windows={"actions": range(8)}, batch_size=64))
    print(kinograph.doctor(loader, step=train))        the loader that trains, and the step itself: ours, a torch
                                                       DataLoader, or any iterable of batches

``docs/guide/doctor.md`` says what is measured and how the predictions are made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from kinograph import _core
from kinograph import numpy as _numpy
from kinograph._arguments import to_number
from kinograph._dataset import Dataset
from kinograph._doctor_foreign import Examination, examine, kept_random, to_files
from kinograph._errors import InvalidArgumentError
from kinograph._idle import GpuPrice
from kinograph._loader import BaseLoader, Trained
from kinograph._loader_options import Images
from kinograph._order import Source
from kinograph._report import written
from kinograph._samples import Samples, WindowSpec
from kinograph._trial import to_subject


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
    ``"memory"``, ``"cpu_share"``, and for other loaders than ours also ``"workers"``, ``"transfer"``,
    ``"worker_start"`` and ``"loader"``; ``verdict`` is the same in a sentence with figures. ``met`` says whether the target
    is reached. ``changes`` come with the best first, ``evidence`` is everything that was measured.
    """

    cause: str
    verdict: str
    met: bool
    changes: tuple[Change, ...]
    evidence: Mapping[str, Any]
    _json: str = dataclasses.field(repr=False)

    @property
    def is_alarm(self) -> bool:
        """Whether the compute ratio is below 0.85: the GPU waits for data."""
        return bool(json.loads(self._json)["idle"]["is_alarm"])

    @property
    def cost_per_day(self) -> float | None:
        """What waiting costs per day, in the currency of ``gpu_price``; ``None`` without a price."""
        cost = json.loads(self._json)["idle"]["cost"]
        return None if cost is None else float(cost["cost_per_day"])

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
    loader: Trained | BaseLoader[Any, Any] | Iterable[Any] | None = None,
    *,
    step: Callable[[Any], object] | None = None,
    step_s: float | None = None,
    target: float = 0.95,
    seconds: float = 10.0,
    dataset: Trained | BaseLoader[Any, Any] | Iterable[Any] | None = None,
    windows: Mapping[str, WindowSpec] | None = None,
    anchor: str | float | None = None,
    batch_size: int | None = None,
    images: Images | Mapping[str, Any] | None = None,
    memory: int | str | None = None,
    device: object = None,
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    gpu_price: float | None = None,
    gpus: int = 1,
) -> Diagnosis:
    """Find out whether a training loop waits for data, for what, and what to change.

    >>> found = kinograph.doctor(ds, step_s=0.02, windows={"actions": [0]}, batch_size=8, seconds=0.5)
    >>> found.cause in ("nothing", "slow_step"), found.met
    (True, True)

    Takes the loader you train with, or a dataset. The loop runs with its step; if it waits, the loader runs again
    with stages removed, which takes about five times ``seconds``. A loader keeps its place, but its threads are
    stopped meanwhile.

    A torch ``DataLoader`` is taken apart too, and any other iterable of batches is measured from outside:

    >>> batches = [np.zeros((8, 7))] * 10
    >>> kinograph.doctor(batches, step_s=0.01, seconds=0.2, gpu_price=2.50, gpus=8).cause
    'slow_step'

    The ``DataLoader`` itself is not iterated: clones of it are, and random states are restored. To see what moving to
    Kinograph would bring, pass ``dataset``: both are measured in the same loop.

    :param loader: The loader that you train with, of any kind; or what a loader of Kinograph takes: a path, a dataset,
        samples or sources
    :param step: Called with a batch, as in training. It must block until its work is finished, for example by copying
        a result to the host, unless ``device`` is given
    :param step_s: Or how long a step takes, in seconds; it is emulated on one core. ``kinograph.profile`` measures it
    :param target: The fraction of the time that the loop should compute
    :param seconds: How long to watch the loop
    :param dataset: For another loader than ours: the same recording in Kinograph, to compare with. With a path, the
        step is emulated; a loader is run with ``step``, so its batches must have the form that the step expects
    :param windows: As for a loader of Kinograph; without it, the frame of every stream at the anchor
    :param anchor: As for a loader
    :param batch_size: As for a loader; that of the other loader, or 64, by default
    :param images: As for a loader
    :param memory: As for a loader
    :param device: For another loader than ours: the GPU that ``step`` computes on, whose clock then times it
    :param files: For another loader than ours: the files or folders that it reads, to drop them from the page cache
        first
    :param gpu_price: What a GPU costs per hour, in any currency, to show what waiting costs per day
    :param gpus: How many GPUs wait

    For any other option, make the loader and pass it.
    """
    _check_step(step, step_s)
    options = {
        "windows": windows,
        "anchor": anchor,
        "batch_size": batch_size,
        "images": images,
        "memory": memory,
    }
    price = GpuPrice.of(gpu_price, gpus)
    if loader is None:
        loader, dataset = dataset, None
    if loader is None:
        raise InvalidArgumentError("give the loader that you train with, or a dataset")
    if not _is_ours(loader):
        how = Examination(
            step=step,
            step_s=None if step_s is None else to_number("step_s", step_s),
            target=to_number("target", target),
            seconds=to_number("seconds", seconds),
            device=device,
            files=to_files(files),
            price=price,
        )
        with kept_random(loader):
            return _from_json(_examine(loader, how, dataset, options))
    for name, value in (("dataset", dataset), ("device", device), ("files", files)):
        if value is not None:
            raise InvalidArgumentError(
                f"`{name}` is for other loaders than ours, and this is a {type(loader).__name__}"
            )
    made = _to_loader(loader, options)
    # Its threads would compete with those that are measured.
    made.close()

    def trains(arrays: dict[str, Any]) -> object:
        batch = {key: made._to_array(*array) for key, array in arrays.items()}
        return step(batch) if step is not None else None

    args: _core.DoctorArgs = {
        "step": to_number("step_s", step_s) if step is None else trains,
        "target": to_number("target", target),
        "seconds": to_number("seconds", seconds),
        "gpu_price": price.per_hour,
        "gpus": price.gpus,
    }
    return _from_json(_core.doctor(made._order._core, *made._to_core(), args))


def _check_step(step: object, step_s: object) -> None:
    if (step is None) == (step_s is None):
        raise InvalidArgumentError(
            "give exactly one of `step`, a function that trains on a batch, and `step_s`, its time in seconds "
            "(kinograph.profile measures it)"
        )
    if not (step is None or callable(step)):
        raise InvalidArgumentError(f"step is {step!r}; give a function, or its time as `step_s`")


def _is_ours(loader: object) -> bool:
    """Whether this is a loader of Kinograph, or what one takes."""
    ours = (str, os.PathLike, Dataset, Samples, Source)
    if isinstance(loader, list | tuple):
        parts = (part[0] if isinstance(part, tuple) and part else part for part in loader)
        return bool(loader) and all(isinstance(part, ours) for part in parts)
    return isinstance(loader, (BaseLoader, *ours))


def _examine(
    loader: Any,  # noqa: ANN401 (any loader)
    how: Examination,
    dataset: Any,  # noqa: ANN401 (ours, or any other loader)
    options: dict[str, Any],
) -> str:
    """Examine another loader than ours."""
    _check_times(how)
    subject = to_subject(loader)
    if dataset is None:
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InvalidArgumentError(
                f"`{given[0]}` describes what to load from Kinograph; give that as `dataset`"
            )
        return examine(subject, how)
    if isinstance(dataset, BaseLoader) or not _is_ours(dataset):
        made = _to_loader(dataset, options) if _is_ours(dataset) else dataset
        name = f"{type(dataset).__name__} (Kinograph)"
    else:
        options = options | {"batch_size": options["batch_size"] or subject.samples}
        made = _to_loader(dataset, options)
        name = f"kinograph.numpy.Loader over {made._whole or made._order}"
    with _kept_place(made):
        other = (made, name, isinstance(dataset, BaseLoader) or not _is_ours(dataset))
        return examine(subject, dataclasses.replace(how, kinograph=other))


def _check_times(how: Examination) -> None:
    if how.step_s is not None and not 0 < how.step_s <= 3600:
        raise InvalidArgumentError("the step time must be above 0 and at most one hour")
    if not 0 < how.target <= 1:
        raise InvalidArgumentError(
            f"the target {how.target} is not a fraction above 0 and up to 1; use for example 0.95"
        )
    if not 0 < how.seconds <= 3600:
        raise InvalidArgumentError(
            "the measuring time (`seconds`) must be above 0 and at most one hour"
        )


@contextlib.contextmanager
def _kept_place(loader: object) -> Iterator[None]:
    """Return a loader of ours to its place afterwards, and end its threads."""
    if not isinstance(loader, BaseLoader):
        yield
        return
    state = loader.state_dict()
    try:
        yield
    finally:
        loader.close()
        loader.load_state_dict(state)


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


def _to_loader(
    dataset: Any,  # noqa: ANN401 (ours)
    options: dict[str, Any],
) -> BaseLoader[Any, Any]:
    if isinstance(dataset, BaseLoader):
        if any(one is not None for one in options.values()):
            raise InvalidArgumentError(
                "`windows`, `anchor`, `batch_size`, `images` and `memory` cannot be combined with a loader; give them to the "
                "loader"
            )
        return dataset
    options = options | {"batch_size": options["batch_size"] or 64}
    if isinstance(dataset, str | os.PathLike):
        dataset = Dataset(dataset)
    if isinstance(dataset, Dataset) and options["windows"] is None:
        options["windows"], options["anchor"] = every_stream(dataset, options["anchor"])
    return _numpy.Loader(dataset, **options)


def every_stream(
    dataset: Dataset, anchor: str | float | None, taken: Container[str] | None = None
) -> tuple[dict[str, list[int]], str | float | None]:
    """Request every stream, or those that are taken, at the anchor: that given, or the actions."""
    names = [
        name
        for name, stream in dataset.streams.items()
        if stream.variant_of is None and (taken is None or name in taken)
    ]
    actions = next((name for name in ("actions", "action") if name in names), None)
    return {name: [0] for name in names}, anchor or actions
