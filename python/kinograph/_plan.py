"""The planner: which codec each stream should have, for this data, this storage, this machine and this model.

    choice = kinograph.plan("lift.kino", step_s=0.02, windows={"actions": range(8)}, batch_size=64)
    print(choice)                                  what was chosen, and why
    kinograph.repack("lift.kino", "new.kino", plan=choice)
    choice.what_if(storage="100MB/s,8ms").codecs   the choice for other storage, without measuring again

``docs/guide/choose-a-plan.md`` says what is measured and how the predictions are made.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kinograph import _core
from kinograph._arguments import to_bytes, to_number, to_whole
from kinograph._dataset import Dataset
from kinograph._doctor import _to_loader, every_stream
from kinograph._errors import InvalidArgumentError, KinographWarning
from kinograph._loader import BaseLoader, Trained
from kinograph._loader_options import Images
from kinograph._probe_options import ProbeOptions, say, to_probe
from kinograph._repack import repack
from kinograph._report import Shown, written
from kinograph._samples import Window, WindowSpec
from kinograph._source import is_dataset, refuse, to_rule, to_source

# How often and how long a step is repeated to time it.
_STEPS, _STEPS_S = 5, 1.0


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a plan would do.

    ``compute_ratio`` is the fraction of the time in which the training loop does not wait for data, after the first
    epoch; ``cores`` is what loading keeps busy at the full speed of the model. ``sizes`` has the height and width of the
    streams that are resized before they are stored.
    """

    codecs: Mapping[str, str]
    sizes: Mapping[str, tuple[int, int]]
    bytes: int
    compute_ratio: float
    first_compute_ratio: float
    samples_per_s: float
    epoch_s: float
    batch_s: float
    cores: float
    read_bytes_per_s: float
    pack_s: float
    is_lossless: bool
    is_allowed: bool
    is_on_front: bool


@dataclasses.dataclass(frozen=True)
class SplitPoint:
    """Images stored as they are recorded, decoded, resized or normalised, and what that would do.

    Only of streams that the loader resizes; all others are stored as in the chosen plan. ``sample_cpu_s`` is the CPU time to
    decode and resize the frames of a sample.
    """

    name: str
    codecs: Mapping[str, str]
    is_resized: bool
    is_allowed: bool
    sample_cpu_s: float
    bytes: int
    pack_s: float
    samples_per_s: float
    compute_ratio: float


@dataclasses.dataclass(frozen=True)
class Verified:
    """What was predicted for a plan, and what was measured on a sample that was packed with it."""

    plan: int
    predicted: float
    measured: float
    predicted_bytes: float
    measured_bytes: float


@dataclasses.dataclass(frozen=True)
class FewerDecodes:
    """An option of the loader with which frames are decoded less often, and what the chosen plan would reach with it.

    ``option`` is how to write it: ``memory="289MB"`` or ``shuffle=kinograph.Shuffle(episodes=15)``, whose batches mix fewer
    episodes (``mixes_less``). ``decodes`` is how often a frame would be decoded per epoch, after the first.
    """

    option: str
    mixes_less: bool
    decodes: float
    compute_ratio: float


@dataclasses.dataclass(frozen=True)
class SignalBound:
    """What a bound such as ``signal(2%)`` became for a stream.

    ``codec`` is None if the stream stays lossless. ``reason`` is why it is not stored smaller, ``evidence`` what was measured, as the
    plan and the datasets that are written with it have it. Bytes are those of a frame, in a sample.
    """

    stream: str
    percent: float
    codec: str | None
    frame_bytes: float
    lossless_frame_bytes: float
    reason: str
    evidence: Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True)
class PlanChoice:
    """What the planner found; ``print`` shows all of it, a notebook shows plots.

    ``plans`` are the candidates, the smallest first, and ``chosen`` is one of them. ``within_limits`` is false if no
    plan keeps the limits; then the smallest was chosen. ``measured`` is everything that was measured, ``verified`` are
    predictions beside measurements, if that was asked for. ``split_points`` compares where images that the loader resizes
    could be materialised. ``fewer_decodes`` are options of the loader that would raise the compute ratio, if memory for decoded
    frames is what limits it. ``signal_bounds`` are what bounds such as ``signal(2%)`` became; ``probed`` is what the probe says of
    plans that lose something, if that was asked for.
    """

    plans: tuple[Prediction, ...]
    chosen: Prediction
    within_limits: bool
    measured: Mapping[str, Any]
    split_points: tuple[SplitPoint, ...]
    fewer_decodes: tuple[FewerDecodes, ...]
    verified: tuple[Verified, ...]
    signal_bounds: tuple[SignalBound, ...]
    probed: Mapping[str, Any] | None
    _json: str = dataclasses.field(repr=False)

    @property
    def codecs(self) -> Mapping[str, str]:
        """The codec of every stream."""
        return self.chosen.codecs

    @property
    def compute_ratio(self) -> float:
        """The predicted fraction of the time in which the training loop does not wait."""
        return self.chosen.compute_ratio

    def to_toml(
        self, path: str | os.PathLike[str] | None = None, *, plan: int | None = None
    ) -> str:
        """Give the plan as TOML, and write it to a file if there is one.

        :param path: The file
        :param plan: Another of ``plans``, by its number
        """
        number = json.loads(self._json)["chosen"] if plan is None else plan
        return written(path, _core.plan_toml(self._json, to_whole("plan", number)))

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give everything as JSON, and write it to a file if there is one."""
        return written(path, self._json)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give a page with plots, and write it to a file if there is one."""
        return written(path, _core.plan_html(self._json, True))

    def what_if(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        *,
        step_s: float | None = None,
        storage: str | None = None,
        ranks: int | None = None,
        cores: int | None = None,
        host_memory: int | str | None = None,
        max_size: int | str | None = None,
        max_pack_s: float | None = None,
        hours: float | None = None,
        gpu_price: float | None = None,
    ) -> PlanChoice:
        """Choose for another model, host, storage or limit, from the same measurements.

        Limits that are not given are none; everything else stays as it was.

        :param step_s: Duration of a training step, in seconds
        :param storage: Bandwidth and latency, such as ``"200MB/s,8ms"``
        :param ranks: Training processes on the host
        :param cores: Cores of the host
        :param host_memory: Memory of the host
        :param max_size: The most that the dataset may take
        :param max_pack_s: The longest that packing may take, in seconds
        :param hours: Hours of training, for the number of epochs
        :param gpu_price: Price of a GPU hour
        """
        asked = json.loads(self._json)["question"]
        how = _arguments(
            step_s=asked["step_s"] if step_s is None else step_s,
            storage=storage,
            ranks=asked["ranks"] if ranks is None else ranks,
            cores=cores,
            host_memory=host_memory,
            max_size=max_size,
            max_pack_s=max_pack_s,
            hours=hours,
            gpu_price=gpu_price,
        )
        return _from_json(_core.plan_what_if(self._json, how))

    def _repr_html_(self) -> str:
        return _core.plan_html(self._json, False)

    def __str__(self) -> str:
        return _core.plan_text(self._json)


def plan(  # noqa: PLR0913 (each is a keyword of its own)
    source: str | os.PathLike[str] | Dataset | BaseLoader[Any, Any],
    *,
    step: Callable[[dict[str, Any]], object] | None = None,
    step_s: float | None = None,
    report: Shown | str | os.PathLike[str] | None = None,
    rate_hz: float | None = None,
    format: str | None = None,  # noqa: A002 (same name as in the CLI)
    mapping: str | os.PathLike[str] | None = None,
    streams: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    episodes: str | Iterable[int | str] | None = None,
    follow_links: bool = False,
    keep_dtype: bool = False,
    windows: Mapping[str, WindowSpec] | None = None,
    anchor: str | float | None = None,
    batch_size: int | None = None,
    images: Images | Mapping[str, Any] | None = None,
    memory: int | str | None = None,
    bounds: Mapping[str, str] | str | os.PathLike[str] | None = None,
    quality: int | None = None,
    signal: bool = False,
    probe: ProbeOptions | None = None,
    foreign: Sequence[str] = (),
    allow_resize: bool = False,
    storage: str | None = None,
    ranks: int = 1,
    cores: int | None = None,
    host_memory: int | str | None = None,
    max_size: int | str | None = None,
    max_pack_s: float | None = None,
    hours: float | None = None,
    gpu_price: float | None = None,
    folder: str | os.PathLike[str] = ".",
    sample: int | str = "256MB",
    seconds: float = 2.0,
    verify: bool = False,
    progress: Callable[[str], object] | None = say,
) -> PlanChoice:
    """Choose the codec of every stream: measure this data, storage and machine, and predict how busy the GPU will be.

    >>> choice = kinograph.plan(ds, step_s=0.02, windows={"actions": range(8)}, batch_size=8, seconds=0.2)
    >>> choice.within_limits, choice.chosen.is_lossless, choice.compute_ratio > 0.5
    (True, True, True)
    >>> "actions" in choice.codecs
    True

    Candidate codecs are measured on a sample of every stream, the loader on that sample, and the storage. The plan
    with the highest predicted compute ratio inside the limits is chosen; of equals, the smallest. Nothing is lost
    unless ``bounds`` or ``quality`` allows it, and images keep their size unless ``allow_resize`` is true. A recording that
    is not packed yet is sampled: a few episodes are packed into ``folder``, and removed afterwards.

    Only episodes with frames of every requested stream are loaded; the result says how many lack one. Streams that no
    policy needs can be left out:

    >>> part = kinograph.plan(ds, step_s=0.02, exclude="obs/*_image", episodes="0-1", batch_size=8, seconds=0.2)
    >>> "obs/agentview_image" in part.codecs, part.measured["whole"]["episodes"]
    (False, 2)

    Give one of ``step``, ``step_s`` and ``report``:

    :param source: A recording, a dataset, or the loader you train with
    :param step: Called with a batch, as in training, to time it. It must block until its work is finished
    :param step_s: Duration of a training step, in seconds
    :param report: The report of a past run, or the file that its ``to_json`` has written
    :param rate_hz: As for :func:`pack`, like the other options of recordings: ``format``, ``mapping``, ``follow_links`` and
        ``keep_dtype``
    :param format: The recording's format
    :param mapping: A TOML file that says which object of the recording becomes which stream
    :param streams: Only streams that match one of these patterns; also of a dataset
    :param exclude: Leave out streams that match one of these patterns; also of a dataset
    :param episodes: Only these episodes, by number, range or id; also of a dataset
    :param follow_links: Whether to follow links that lead out of the recording's folder
    :param keep_dtype: Whether to import float images of whole numbers as they are
    :param windows: As for a loader; without it, the frame of every stream at the anchor
    :param anchor: As for a loader
    :param batch_size: As for a loader; 64 by default
    :param images: As for a loader
    :param memory: As for a loader
    :param bounds: What streams may lose, by pattern: ``{"obs/*_image": "psnr(40)"}``, or ``"signal(2%)"`` for what lets the held-out
        error of actions grow by less than 2 %, by the probe. Or the TOML file of a plan with bounds and protected events
    :param quality: Also consider JPEG of this quality, 1 to 100, for images without a bound
    :param signal: Whether the probe says what a policy would lose with the plans that lose something (:func:`probe`)
    :param probe: How the probe measures, for ``signal`` and for bounds such as ``signal(2%)``: ``{"inputs": ["cam"]}``. Without
        ``inputs``, a policy sees the streams that the loader reads; an ``encoder`` is for ``signal`` only
    :param foreign: Foreign codecs that may be chosen, such as ``["webp-80"]``: every reader of the dataset needs them
        too. Others are only compared
    :param allow_resize: Also consider images stored in the size that ``images`` resizes them to: nothing else can be made
        of them then. What that would bring is in ``split_points`` in any case
    :param storage: The storage to read from, if it is not this one: ``"200MB/s,8ms"``
    :param ranks: Training processes on the host, one per GPU
    :param cores: Cores of the training host; by default those of this machine
    :param host_memory: Memory of the training host; by default that of this machine
    :param max_size: The most that the dataset may take
    :param max_pack_s: The longest that packing may take on this machine, in seconds
    :param hours: Hours of training, to say how many epochs they buy
    :param gpu_price: Price of a GPU hour, to say what waiting costs
    :param folder: Where to pack samples: on the storage that the dataset will be on
    :param sample: Decoded size of the sample
    :param seconds: How long each run of the loader is measured
    :param verify: Pack a sample with the chosen plan, load it, and compare with the prediction
    :param progress: Called with a line about what the probe does next and how long it takes; by default written to stderr
    """
    if sum(one is not None for one in (step, step_s, report)) != 1:
        raise InvalidArgumentError(
            "give exactly one of `step`, a function that trains on a batch, `step_s`, its time in seconds, and `report`, "
            "the report of a past run"
        )
    options = {
        "windows": windows,
        "anchor": anchor,
        "batch_size": batch_size,
        "images": images,
        "memory": memory,
    }

    def measure(loader: BaseLoader[Any, Any], whole: str | None = None) -> PlanChoice:
        found_s = _step_s(loader, step, step_s, report)
        # Its threads would compete with those that are measured.
        loader.close()
        how = _arguments(
            step_s=found_s,
            bounds=_bounds(bounds, quality),
            foreign=foreign,
            allow_resize=allow_resize,
            storage=storage,
            ranks=ranks,
            cores=cores,
            host_memory=host_memory,
            max_size=max_size,
            max_pack_s=max_pack_s,
            hours=hours,
            gpu_price=gpu_price,
            seconds=seconds,
            whole=whole,
            signal=signal,
            probe=probe,
        )
        return _from_json(_core.plan(loader._order._core, *loader._to_core(), how, progress))

    how_read: dict[str, Any] = {
        "rate_hz": rate_hz,
        "format": format,
        "mapping": mapping,
        "streams": streams,
        "exclude": exclude,
        "episodes": episodes,
        "follow_links": follow_links,
        "keep_dtype": keep_dtype,
    }
    if isinstance(source, BaseLoader):
        refuse(options | how_read, tuple(options | how_read), "a loader; give them to the loader")
        if verify:
            raise InvalidArgumentError(
                "verify=True packs a sample and needs a recording or a dataset, not a loader"
            )
        return measure(source)
    options["batch_size"] = 64 if batch_size is None else batch_size
    most = to_bytes("sample", sample, least=1)
    read = to_source(**how_read)
    requested = _requested(windows)
    if isinstance(source, Dataset) or is_dataset(source):
        of_recordings = ("rate_hz", "format", "mapping", "follow_links", "keep_dtype")
        refuse(how_read, of_recordings, "a dataset; they are for recordings")
        dataset = source if isinstance(source, Dataset) else Dataset(source)
        rows, whole = _core.plan_part(dataset._core, read, requested)
        if windows is None:
            taken = json.loads(whole)["frames"]
            options["windows"], options["anchor"] = every_stream(dataset, anchor, taken)
        choice = measure(_loader(dataset, options | {"episodes": rows}), whole)
        if not verify:
            return choice
        with tempfile.TemporaryDirectory(prefix=".kinograph-plan-", dir=folder) as place:
            target = pathlib.Path(place) / "planned.kino"
            read["episodes"] = _sample_ids(dataset, rows, most)
            _repack_sample(dataset, target, choice, read)
            return _verified(choice, _loader(target, options))

    def pack(target: pathlib.Path, toml: str) -> str:
        how: _core.SampleArgs = {
            "source": read,
            "requested": requested,
            "max_bytes": most,
            "plan": toml,
        }
        return _core.pack_sample(source, target, how)

    with tempfile.TemporaryDirectory(prefix=".kinograph-plan-", dir=folder) as place:
        target = pathlib.Path(place) / "sample.kino"
        whole = pack(target, "")
        choice = measure(_loader(target, options), whole)
        if not verify:
            return choice
        target = pathlib.Path(place) / "planned.kino"
        pack(target, choice.to_toml())
        return _verified(choice, _loader(target, options))


def _requested(windows: Mapping[str, WindowSpec] | None) -> list[str]:
    """Name the streams of the windows; none are all."""
    return [
        window.stream if isinstance(window, Window) and window.stream is not None else key
        for key, window in (windows or {}).items()
    ]


def _sample_ids(dataset: Dataset, rows: list[int] | None, most: int) -> list[str]:
    """Name a sample of the episodes, of up to about so many decoded bytes."""
    every = range(len(dataset)) if rows is None else rows
    size = sum(stream.raw_bytes for stream in dataset.streams.values())
    size = size * len(every) // max(len(dataset), 1)
    numbers = _core.sample_episodes(len(every), size, most)
    return [dataset[every[number]].id for number in numbers]


def _repack_sample(
    dataset: Dataset, target: pathlib.Path, choice: PlanChoice, part: _core.SourceArgs
) -> None:
    """Store a part of a dataset with the chosen plan."""
    plan = target.with_suffix(".toml")
    choice.to_toml(plan)
    repack(
        dataset.path,
        target,
        plan=plan,
        streams=part["streams"] or None,
        exclude=part["exclude"] or None,
        episodes=part["episodes"],
        version=dataset.version,
        root=dataset.root,
        allow_generation_loss=True,
    )


def _loader(dataset: Trained, options: dict[str, Any]) -> BaseLoader[Any, Any]:
    """Make the loader of the training loop; how often it decodes is part of the answer, not a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KinographWarning)
        return _to_loader(dataset, dict(options))


def _verified(choice: PlanChoice, loader: BaseLoader[Any, Any]) -> PlanChoice:
    """Run a loop on a sample that was packed with the chosen plan."""
    how: _core.VerifyArgs = {"found": choice._json, "plan": json.loads(choice._json)["chosen"]}
    text = _core.plan_verify(loader._order._core, *loader._to_core(), how)
    loader.close()
    return _from_json(text)


def _step_s(
    loader: BaseLoader[Any, Any],
    step: Callable[[dict[str, Any]], object] | None,
    step_s: float | None,
    report: Shown | str | os.PathLike[str] | None,
) -> float:
    """Find the duration of a step: given, from a report, or measured on one batch."""
    if step_s is not None:
        return to_number("step_s", step_s)
    if report is not None:
        if isinstance(report, Shown):
            measured = report._measured()
        else:
            try:
                measured = json.loads(pathlib.Path(report).read_text())
            except ValueError as error:
                raise InvalidArgumentError(f"{report} is not a report: {error}") from None
        found = float(measured.get("loop", {}).get("compute", {}).get("p50_s", 0.0))
        if found <= 0.0:
            raise InvalidArgumentError("the report has no step time; train a few steps first")
        return found
    if not callable(step):
        raise InvalidArgumentError(f"step is {step!r}; give a function, or its time as `step_s`")
    batch = next(iter(loader))
    loader.close()
    step(batch)
    times: list[float] = []
    while len(times) < _STEPS or (sum(times) < _STEPS_S and len(times) < 1000):
        began = time.perf_counter()
        step(batch)
        times.append(time.perf_counter() - began)
    return max(sorted(times)[len(times) // 2], 1e-6)


def _bounds(bounds: Mapping[str, str] | str | os.PathLike[str] | None, quality: int | None) -> str:
    """Write what may be lost as a plan."""
    if isinstance(bounds, str | os.PathLike):
        if quality is not None:
            raise InvalidArgumentError("a plan as `bounds` has its own quality; remove `quality`")
        return pathlib.Path(bounds).read_text(encoding="utf-8")
    lines = []
    if quality is not None:
        lines.append(f"quality = {to_whole('quality', quality, least=1, most=100)}")
    for pattern, bound in (bounds or {}).items():
        lines.append(to_rule(pattern, "bound", bound))
    return "\n".join(lines)


def _arguments(  # noqa: PLR0913 (each is a keyword of its own)
    *,
    step_s: float,
    storage: str | None,
    ranks: int,
    cores: int | None,
    host_memory: int | str | None,
    max_size: int | str | None,
    max_pack_s: float | None,
    hours: float | None,
    gpu_price: float | None,
    bounds: str = "",
    foreign: Sequence[str] = (),
    allow_resize: bool = False,
    seconds: float = 1.0,
    whole: str | None = None,
    signal: bool = False,
    probe: ProbeOptions | None = None,
) -> _core.PlanArgs:
    def number(name: str, value: float | None) -> float | None:
        return None if value is None else to_number(name, value)

    def size(name: str, value: int | str | None) -> int | None:
        return None if value is None else to_bytes(name, value, least=1)

    return {
        "step_s": to_number("step_s", step_s),
        "ranks": to_whole("ranks", ranks, least=1),
        "cores": None if cores is None else to_whole("cores", cores, least=1),
        "host_memory": size("host_memory", host_memory),
        "storage": storage,
        "bounds": bounds,
        "foreign": [foreign] if isinstance(foreign, str) else list(foreign),
        "allow_resize": allow_resize,
        "max_bytes": size("max_size", max_size),
        "max_pack_s": number("max_pack_s", max_pack_s),
        "hours": number("hours", hours),
        "gpu_price": number("gpu_price", gpu_price),
        "seconds": to_number("seconds", seconds),
        "whole": whole,
        "signal": signal,
        "probe": to_probe(**(probe or {})),
    }


def _from_json(text: str) -> PlanChoice:
    found = json.loads(text)
    streams = found["measured"]["streams"]
    own = {"codecs", "sizes", "is_lossless", "is_allowed", "is_on_front"}
    names = [field.name for field in dataclasses.fields(Prediction) if field.name not in own]

    def to_prediction(candidate: dict[str, Any]) -> Prediction:
        numbers = candidate["codecs"]
        codecs = {
            stream["name"]: stream["options"][number]["codec"]
            for stream, number in zip(streams, numbers, strict=True)
        }
        sizes = {
            stream["name"]: tuple(stream["options"][number]["resize"])
            for stream, number in zip(streams, numbers, strict=True)
            if stream["options"][number]["resize"] is not None
        }
        figures = {name: candidate["prediction"][name] for name in names}
        figures["bytes"] = round(figures["bytes"])
        flags = {name: candidate[name] for name in own - {"codecs", "sizes"}}
        return Prediction(codecs=codecs, sizes=sizes, **figures, **flags)

    def to_split_point(point: dict[str, Any]) -> SplitPoint:
        prediction = point.pop("prediction")
        figures = {name: prediction[name] for name in ("pack_s", "samples_per_s", "compute_ratio")}
        point["codecs"] = dict(point["codecs"])
        return SplitPoint(**point, bytes=round(prediction["bytes"]), **figures)

    plans = tuple(map(to_prediction, found["plans"]))
    return PlanChoice(
        plans=plans,
        chosen=plans[found["chosen"]],
        within_limits=found["is_within_limits"],
        measured=found["measured"],
        split_points=tuple(map(to_split_point, found["split_points"])),
        fewer_decodes=tuple(FewerDecodes(**one) for one in found["answers"]["fewer_decodes"]),
        verified=tuple(Verified(**one) for one in found["verified"]),
        signal_bounds=tuple(
            SignalBound(**one) for one in (found["measured"]["signal"] or {}).get("streams", [])
        ),
        probed=None if found["probed"] is None else found["probed"]["found"],
        _json=text,
    )
