"""Whether live frames look like the training frames.

    print(kinograph.check_deployment({"wrist": frames}, "lift.kino"))       or a parity file, without the dataset

What is compared, and where the limits come from, is in ``docs/guide/deploy.md``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError
from kinograph._parity import Parity
from kinograph._report import written

# Frames of one camera: an array of [frames, height, width, channels], or a list of [height, width, channels].
Frames: TypeAlias = "npt.ArrayLike | Sequence[npt.ArrayLike]"


@dataclasses.dataclass(frozen=True)
class DeploymentWarning:
    """One way in which live frames differ from training frames: what, why it matters, and what to do."""

    stream: str
    check: str
    severity: Literal["high", "medium"]
    what: str
    why: str
    action: str
    measured: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.stream} · {self.check} ({self.severity}): {self.what}; {self.action}"


@dataclasses.dataclass(frozen=True)
class DeploymentReport:
    """How live frames compare with training frames; ``print`` shows all of it, a notebook shows a table.

    ``ok`` says that nothing differs, ``warnings`` come with the worst first. ``streams`` has every figure that was compared,
    by key: live, in training, how many standard deviations apart, and the limit.
    """

    warnings: tuple[DeploymentWarning, ...]
    notes: tuple[str, ...]
    streams: Mapping[str, Mapping[str, Any]]
    _json: str = dataclasses.field(repr=False)
    _text: str = dataclasses.field(repr=False)
    _html: str = dataclasses.field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether live frames look like training frames in everything that was compared."""
        return not self.warnings

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give everything as JSON, and write it to a file if there is one."""
        return written(path, self._json)

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


def check_deployment(
    live_frames: Mapping[str, Frames] | Frames,
    training: str | os.PathLike[str] | Dataset | Parity,
    *,
    stream: str | None = None,
    episodes: Iterable[int | str] | None = None,
) -> DeploymentReport:
    """Compare live frames with the frames a policy was trained on, before a robot moves.

    >>> live = {"obs/agentview_image": ds[1]["obs/agentview_image"][::5]}
    >>> report = kinograph.check_deployment(live, ds)
    >>> report.ok
    True
    >>> cropped = {"obs/agentview_image": live["obs/agentview_image"][:, :24]}
    >>> warning = kinograph.check_deployment(cropped, ds).warnings[0]
    >>> warning.check, warning.severity, warning.what
    ('size', 'high', 'live frames are 24 × 24, training frames 32 × 24')

    It looks for another size, dtype or channel order, black borders, exposure and colors, blur and noise, and traces of
    JPEG that only one side has. What counts as unusual comes from the training frames: how far those of one episode are from
    the others.

    :param live_frames: Frames of each camera, or of one: arrays as the camera driver delivers them, ten or more of several
        moments
    :param training: The dataset or its path, or a parity that was made with its reference, or its file
    :param stream: The camera, if ``live_frames`` is not a dict; not needed if there is only one
    :param episodes: Only compare with these episodes of the dataset, by index or id
    """
    parity = _to_parity(training)
    if parity is None:
        dataset = training if isinstance(training, Dataset) else Dataset(_to_path(training))
        known = [name for name, one in dataset.streams.items() if one.kind == "image"]
        live = _to_live(live_frames, stream, known)
        core = _core.Parity(dataset._core, [(name, name) for name in live], "{}")
        core = core.with_reference(dataset._core, _to_rows(dataset, episodes))
    else:
        if episodes is not None:
            raise InvalidArgumentError(
                "a parity has its reference already; give the dataset to compare with some `episodes`"
            )
        core = parity._core
        live = _to_live(live_frames, stream, parity.keys())
    text, shown, html = core.check_deployment(
        [_packed(key, frames) for key, frames in live.items()]
    )
    found = json.loads(text)
    warnings = tuple(DeploymentWarning(**warning) for warning in found["warnings"])
    return DeploymentReport(warnings, tuple(found["notes"]), found["streams"], text, shown, html)


def _to_parity(training: object) -> Parity | None:
    if isinstance(training, Parity):
        return training
    if isinstance(training, str | os.PathLike) and pathlib.Path(training).is_file():
        return Parity(training)
    return None


def _to_path(training: object) -> str | os.PathLike[str]:
    if isinstance(training, str | os.PathLike):
        return training
    raise InvalidArgumentError(
        f"the second argument, `training`, is {type(training).__name__}; give a dataset, its path, or a kinograph.Parity"
    )


def _to_rows(dataset: Dataset, episodes: Iterable[int | str] | None) -> list[int] | None:
    return None if episodes is None else [dataset[episode].index for episode in episodes]


def _to_live(frames: object, stream: str | None, known: Sequence[str]) -> dict[str, Any]:
    """Take frames by key, or those of one camera."""
    if isinstance(frames, Mapping):
        if stream is not None:
            raise InvalidArgumentError("`stream` names the camera of frames that are not in a dict")
        if not frames:
            raise InvalidArgumentError("live_frames is empty; give frames of at least one camera")
        return dict(frames)
    if stream is None and len(known) != 1:
        raise InvalidArgumentError(
            f"which camera are the frames of? give `stream`, one of {', '.join(known)}"
        )
    return {stream or known[0]: frames}


def _packed(key: str, frames: Any) -> tuple[str, str, list[int], npt.NDArray[np.uint8]]:  # noqa: ANN401 (arrays, or a list)
    if isinstance(frames, str | bytes) or not isinstance(frames, Iterable):
        raise InvalidArgumentError(
            f"`{key}`: live frames are {type(frames).__name__}; give an array of frames, height, width, channels"
        )
    arrays = [np.asarray(frame) for frame in frames]
    if any(array.dtype.kind in "SUO" for array in arrays):
        raise InvalidArgumentError(
            f"`{key}`: live frames hold {arrays[0].dtype}, not numbers; decode JPEG files first, for instance with "
            "`np.asarray(PIL.Image.open(file))`"
        )
    shapes = {array.shape for array in arrays}
    if not shapes:
        raise InvalidArgumentError(
            f"`{key}`: there are no live frames; give ten or more, of several moments"
        )
    if len(shapes) > 1:
        raise InvalidArgumentError(
            f"`{key}`: live frames must have one shape, but they have {', '.join(map(str, sorted(shapes)))}"
        )
    stacked = np.ascontiguousarray(np.stack(arrays))
    if stacked.ndim == 3:
        raise InvalidArgumentError(
            f"`{key}` is a single frame or has no channels: shape {stacked.shape}; give several frames of height, width, channels"
        )
    return key, str(stacked.dtype), list(stacked.shape), stacked.reshape(-1).view(np.uint8)
