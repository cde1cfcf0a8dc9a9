"""The probe: what a policy would lose if its streams were stored like this.

    found = kinograph.probe("lift.kino", codecs={"obs/*_image": "jpeg:q=75"})
    print(found)                       verdicts, contrasts with intervals, how well the probe predicts
    found["codecs"].verdict()          harm, no harm above a limit, or cannot tell

``docs/guide/probe.md`` says what is measured, and how far it carries.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import to_bytes
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError
from kinograph._loader_options import Images
from kinograph._plan import PlanChoice
from kinograph._probe_options import Chosen, Encoder, say, to_probe
from kinograph._report import written
from kinograph._source import is_dataset, refuse, to_rule, to_source

Contrast: TypeAlias = Literal["total", "information", "mismatch"]
Verdict: TypeAlias = Literal["identical", "harm", "no_harm_above", "cannot_tell"]

#: What happens to consecutive frames of a stream: an array with the frames first, and one of the same shape and dtype.
Change: TypeAlias = Callable[[npt.NDArray[Any]], npt.ArrayLike]

#: One way to store streams: a plan, codecs, bounds or functions by pattern, or a dataset with the same episodes.
Candidate: TypeAlias = "str | os.PathLike[str] | PlanChoice | Dataset | Mapping[str, str | Change]"

_BOUND = re.compile(r"lossless|[a-z]+\(.*\)")


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One contrast, for one target and region (``everywhere``, ``events``, ``elsewhere``).

    ``increase`` is by which share of the error on raw frames the error grows; None if it could not be measured. ``limit`` is
    the upper end of the interval if no harm is shown, ``reason`` why nothing can be told.
    """

    target: str
    region: str
    contrast: Contrast
    increase: Interval | None
    verdict: Verdict
    limit: float | None = None
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class Arm:
    """Some streams compressed, the others raw."""

    streams: tuple[str, ...]
    outcomes: tuple[Outcome, ...]


@dataclasses.dataclass(frozen=True)
class Changed:
    """What a candidate does to a stream.

    ``frame_bytes`` is None if it is not known. ``is_identical`` says that every sampled frame came back bit by bit.
    """

    stream: str
    codec: str
    is_identical: bool
    frame_bytes: float | None
    stored_frame_bytes: float
    is_stored_lossless: bool


@dataclasses.dataclass(frozen=True)
class ProbedCandidate:
    """A candidate: what it does to streams, and what a policy would lose.

    ``arms`` has every changed stream alone, then all together if there are several. ``not_probed`` are streams that it
    changes although they are neither input nor target: nothing is known about them.
    """

    name: str
    changes: tuple[Changed, ...]
    not_probed: tuple[str, ...]
    arms: tuple[Arm, ...]

    def outcomes(self, contrast: Contrast = "total") -> tuple[Outcome, ...]:
        """Outcomes of everything that it changes together, everywhere, by target."""
        all_of_it = self.arms[-1].outcomes if self.arms else ()
        return tuple(
            one for one in all_of_it if one.contrast == contrast and one.region == "everywhere"
        )

    def verdict(self, contrast: Contrast = "total") -> Verdict:
        """Give the worst over targets: harm, then what cannot be told, then no harm above a limit."""
        found = [one.verdict for one in self.outcomes(contrast)]
        ranked: tuple[Verdict, ...] = ("harm", "cannot_tell", "no_harm_above")
        return next((verdict for verdict in ranked if verdict in found), "identical")


@dataclasses.dataclass(frozen=True)
class Control:
    """Damage that the probe must see before it certifies anything about a stream."""

    name: str
    stream: str
    outcomes: tuple[Outcome, ...]


@dataclasses.dataclass(frozen=True)
class Skill:
    """How well a target is predicted on raw frames of held-out episodes.

    ``over_constant`` and ``over_vectors`` are by which share the error is below that of a constant, and of the vectors
    without the images.
    """

    target: str
    region: str
    unexplained: float
    over_constant: Interval | None
    over_vectors: Interval | None


@dataclasses.dataclass(frozen=True)
class Probed:
    """What the probe found; ``print`` shows all of it, a notebook shows plots.

    ``effort`` says how much was measured, and how long it took.
    """

    candidates: tuple[ProbedCandidate, ...]
    controls: tuple[Control, ...]
    skill: tuple[Skill, ...]
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    effort: Mapping[str, Any]
    _json: str = dataclasses.field(repr=False)

    def __getitem__(self, name: str) -> ProbedCandidate:
        for candidate in self.candidates:
            if candidate.name == name:
                return candidate
        names = ", ".join(candidate.name for candidate in self.candidates)
        raise KeyError(f"{name!r} is not a candidate; the candidates are {names}")

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give everything as JSON, and write it to a file if there is one."""
        return written(path, self._json)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give a page with plots, and write it to a file if there is one."""
        return written(path, _core.probe_html(self._json, True))

    def _repr_html_(self) -> str:
        return _core.probe_html(self._json, False)

    def __str__(self) -> str:
        return _core.probe_text(self._json)


def probe(  # noqa: PLR0913 (each is a keyword of its own)
    source: str | os.PathLike[str] | Dataset,
    *,
    rate_hz: float | None = None,
    format: str | None = None,  # noqa: A002 (same name as in the CLI)
    mapping: str | os.PathLike[str] | None = None,
    streams: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    episodes: str | Iterable[int | str] | None = None,
    follow_links: bool = False,
    keep_dtype: bool = False,
    plan: str | os.PathLike[str] | PlanChoice | None = None,
    codecs: Mapping[str, str | Change] | None = None,
    against: str | os.PathLike[str] | Dataset | None = None,
    candidates: Mapping[str, Candidate] | None = None,
    inputs: Chosen = (),
    targets: Chosen = (),
    chunk: int = 16,
    images: Images | Mapping[str, Any] | None = None,
    seconds: float = 180.0,
    encoder: Encoder = "random",
    features: int = 1024,
    seeds: int = 3,
    folds: int = 10,
    margin: float = 0.02,
    seed: int = 0,
    folder: str | os.PathLike[str] = ".",
    sample: int | str = "1GB",
    progress: Callable[[str], object] | None = say,
) -> Probed:
    """Measure what a policy would lose if streams were stored like this.

    >>> found = kinograph.probe(  # doctest: +SKIP
    ...     "pusht.kino", codecs={"img": "jpeg:q=75"}, inputs={"img": None, "state": [0, 1]}
    ... )
    >>> found["codecs"].verdict(), found["codecs"].verdict("mismatch")  # doctest: +SKIP
    ('cannot_tell', 'harm')

    A regressor learns actions from the frames of most episodes, and predicts those of the others. ``total`` is how much
    larger its error is on raw frames if it was trained on compressed ones, ``information`` if it was also scored on
    compressed ones, ``mismatch`` if it was trained on raw frames and scored on compressed ones. The verdict is harm, no
    harm above a limit, or that the probe cannot tell, because it predicts too little or would not even see a strong blur.
    It is never that nothing is lost. If every frame comes back bit by bit, the increase is exactly 0.

    Give at least one of ``plan``, ``codecs``, ``against`` and ``candidates``:

    :param source: A dataset, or a recording, of which a sample is packed into ``folder``, and removed afterwards
    :param rate_hz: Frames per second of a recording without a rate
    :param format: Format of a recording, if it is not to be detected
    :param mapping: A TOML file that says which object of a recording becomes which stream
    :param streams: Only streams of a recording that match one of these patterns
    :param exclude: Leave out streams of a recording that match one of these patterns
    :param episodes: Only these episodes of a recording, by number, range or id
    :param follow_links: Whether to follow links that lead out of the recording's folder
    :param keep_dtype: Whether to import float images of whole numbers as they are
    :param plan: A plan, as a file or as `kinograph.plan` returns it
    :param codecs: Codecs or bounds by pattern, ``{"obs/*_image": "jpeg:q=75"}``, or functions by stream, which are given
        consecutive frames as an array
    :param against: A dataset with the same episodes, stored in another way
    :param candidates: Several of these, by name, to compare them: plans, mappings as ``codecs``, or datasets
    :param inputs: What a policy sees: streams, or streams and their elements, ``{"img": None, "state": [0, 1]}``. By
        default all images and vectors but the targets
    :param targets: What it has to predict. By default the actions, and streams named after simulator state
    :param chunk: Frames of an action chunk
    :param images: As for a loader: the size in which the policy sees images
    :param seconds: How long it may take
    :param encoder: What turns images into features. ``"random"``, the default, are random convolutions; what they find was
        compared with rollouts. ``"trained"`` is a small network that learns the targets from raw frames of a third of the
        episodes, which the probe does not use otherwise, in at most half of ``seconds``; it needs torch, and rollouts have
        not confirmed its verdicts. ``"auto"`` is the network where torch is installed
    :param features: Features of all images together; a network has at most 128 per camera
    :param seeds: Sets of features
    :param folds: Parts of the episodes, each of which is held out once
    :param margin: By which share the error must be below those of simpler predictors before it counts
    :param seed: What random numbers start from
    :param folder: Where to pack the sample of a recording
    :param sample: Decoded size of the sample of a recording
    :param progress: Called with a line about what comes next and how long it takes; by default written to stderr
    """
    asked = _asked(plan, codecs, against, candidates)
    how = to_probe(
        inputs=inputs,
        targets=targets,
        chunk=chunk,
        images=images,
        seconds=seconds,
        encoder=encoder,
        features=features,
        seeds=seeds,
        folds=folds,
        margin=margin,
        seed=seed,
    )
    parts = [_candidate(name, one) for name, one in asked.items()]
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
    if isinstance(source, Dataset) or is_dataset(source):
        refuse(how_read, tuple(how_read), "a dataset; they are for recordings")
        dataset = source if isinstance(source, Dataset) else Dataset(source)
        return _from_json(_core.probe(dataset._core, parts, how, progress))
    most = to_bytes("sample", sample, least=1)
    with tempfile.TemporaryDirectory(prefix=".kinograph-probe-", dir=folder) as place:
        target = pathlib.Path(place) / "sample.kino"
        requested = [name for name, _ in how["inputs"] + how["targets"]]
        sampled: _core.SampleArgs = {
            "source": to_source(**how_read),
            "requested": requested if how["inputs"] and how["targets"] else [],
            "max_bytes": most,
            "plan": "",
        }
        _core.pack_sample(source, target, sampled)
        return _from_json(_core.probe(Dataset(target)._core, parts, how, progress))


def _asked(
    plan: Candidate | None,
    codecs: Mapping[str, str | Change] | None,
    against: str | os.PathLike[str] | Dataset | None,
    candidates: Mapping[str, Candidate] | None,
) -> dict[str, Candidate]:
    """Collect candidates by name."""
    asked = dict(candidates or {})
    for name, one in (("plan", plan), ("codecs", codecs)):
        if one is not None:
            asked[name] = one
    if against is not None:
        asked["against"] = against if isinstance(against, Dataset) else Dataset(against)
    if not asked:
        raise InvalidArgumentError(
            "give a `plan`, `codecs`, a dataset as `against`, or several `candidates`"
        )
    return asked


def one_percent(share: float) -> str:
    """Write a share in percent."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 10 else f"{percent:.2g} %"


def _candidate(name: str, one: Candidate) -> _core._Candidate:
    """Take a candidate: its name, and a plan in TOML, a dataset, or functions by stream."""
    if isinstance(one, Dataset):
        return name, None, one._core, {}
    if isinstance(one, PlanChoice):
        return name, one.to_toml(), None, {}
    if not isinstance(one, Mapping):
        return name, pathlib.Path(one).read_text(encoding="utf-8"), None, {}
    if not one:
        raise InvalidArgumentError(f"candidate {name!r} names no stream")
    functions = {stream: change for stream, change in one.items() if callable(change)}
    texts = {pattern: text for pattern, text in one.items() if isinstance(text, str)}
    if functions and texts:
        raise InvalidArgumentError(
            f"candidate {name!r} mixes functions and codecs; use two candidates, or only one of them"
        )
    if len(functions) + len(texts) != len(one):
        raise InvalidArgumentError(
            f"candidate {name!r} must map patterns to codecs or bounds, or streams to functions"
        )
    if functions:
        return name, None, None, {stream: _packed(stream, f) for stream, f in functions.items()}
    rules = []
    for pattern, text in texts.items():
        key = "bound" if _BOUND.fullmatch(text) else "codec"
        rules.append(to_rule(pattern, key, text))
    return name, "\n".join(rules), None, {}


def _packed(stream: str, change: Change) -> Callable[[bytearray, str, list[int]], bytes]:
    """Let a function of arrays take and return packed frames."""

    def apply(frames: bytearray, dtype: str, shape: list[int]) -> bytes:
        array = np.frombuffer(frames, dtype).reshape(-1, *shape)
        found = np.asarray(change(array))
        if found.shape != array.shape or found.dtype != array.dtype:
            raise InvalidArgumentError(
                f"the function for stream {stream!r} must return frames of {array.dtype} {array.shape}, not of "
                f"{found.dtype} {found.shape}"
            )
        return found.tobytes()

    return apply


def _from_json(text: str) -> Probed:
    found = json.loads(text)

    def interval(one: dict[str, float] | None) -> Interval | None:
        return None if one is None else Interval(**one)

    def outcomes(all_of_them: list[dict[str, Any]]) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(
                target=one["target"],
                region=one["region"],
                contrast=one["contrast"],
                increase=interval(one["increase"]),
                verdict=one["verdict"]["kind"],
                limit=one["verdict"].get("limit"),
                reason=one["verdict"].get("reason"),
            )
            for one in all_of_them
        )

    def candidate(one: dict[str, Any]) -> ProbedCandidate:
        return ProbedCandidate(
            name=one["name"],
            changes=tuple(Changed(**change) for change in one["changes"]),
            not_probed=tuple(one["not_probed"]),
            arms=tuple(
                Arm(tuple(arm["streams"]), outcomes(arm["outcomes"])) for arm in one["arms"]
            ),
        )

    return Probed(
        candidates=tuple(map(candidate, found["candidates"])),
        controls=tuple(
            Control(one["name"], one["stream"], outcomes(one["outcomes"]))
            for one in found["controls"]
        ),
        skill=tuple(
            Skill(
                target=one["target"],
                region=one["region"],
                unexplained=one["unexplained"],
                over_constant=interval(one["over_constant"]),
                over_vectors=interval(one["over_vectors"]),
            )
            for one in found["skill"]
        ),
        inputs=tuple(found["inputs"]),
        targets=tuple(found["targets"]),
        effort=found["effort"],
        _json=text,
    )
