"""Exporting a dataset to the formats of other tools."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypedDict

from kinograph import _core
from kinograph._dataset import Dataset
from kinograph._defects import Defect
from kinograph._requests import to_selection

#: The formats that can be written.
To: TypeAlias = Literal[
    "robomimic", "act", "lerobot-v2.1", "lerobot-v3", "zarr", "webdataset", "rlds", "mcap"
]


class Exported(NamedTuple):
    """The result of an export, and what the format could not hold."""

    episodes: int
    frames: int
    defects: list[Defect]


def export(  # noqa: PLR0913 (each is a keyword of its own)
    dataset: Dataset | str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: To,
    split: str | Sequence[str] | None = None,
    episodes: Iterable[int | str] | None = None,
    filter: str | None = None,  # noqa: A002 (same name as in `Dataset.windows`)
    on_defect: Literal["error", "keep"] = "error",
    cameras: Literal["stored", "images", "video"] = "stored",
    progress: Callable[[int, int], object] | None = None,
) -> Exported:
    """Write a dataset, or some of its episodes, in another tool's format.

    >>> exported = kinograph.export("lift.kino", "lift.hdf5", to="robomimic", on_defect="keep")
    >>> exported.episodes, [defect.place for defect in exported.defects]
    (2, ['label `operator`'])

    ``to`` is ``"robomimic"`` (one HDF5 file), ``"act"`` (a folder of HDF5 files, one per episode), ``"lerobot-v2.1"``,
    ``"lerobot-v3"``, ``"zarr"`` (diffusion_policy's arrays), ``"webdataset"``, ``"rlds"`` or ``"mcap"``.
    The target must not exist, and appears in one step when everything is written and synced; if another program creates
    it meanwhile, a :class:`ConflictError` is raised. If the format cannot hold something, the error lists it; with
    ``on_defect="keep"`` it is in ``defects`` of the result. See ``docs/guide/export.md`` for the mapping.

    :param split: export only the episodes of these splits.
    :param episodes: export only these episodes, by row or id, in this order.
    :param filter: export only the episodes that match this expression, such as ``"success and frames >= 100"``.
    :param on_defect: ``"error"`` writes nothing if the format cannot hold something, ``"keep"`` writes the rest.
    :param cameras: ``"stored"`` writes video as video with the same packets, where the format has video, and
        everything else as images; ``"images"`` writes images only; ``"video"`` encodes images as video, which changes
        pixels (LeRobot only; needs ``pip install 'kinograph[video]'``).
    :param progress: called with the bytes of frames done and the total; an exception raised by it stops the
        export, which leaves nothing behind.
    """
    path, options = to_export_args(
        dataset,
        to,
        {
            "split": split,
            "episodes": episodes,
            "filter": filter,
            "on_defect": on_defect,
            "cameras": cameras,
        },
    )
    return to_exported(_core.export(path, target, options, progress))


class ExportOptions(TypedDict, total=False):
    """The options of :func:`kinograph.export`; each has the default that it has there."""

    split: str | Sequence[str] | None
    episodes: Iterable[int | str] | None
    filter: str | None
    on_defect: Literal["error", "keep"]
    cameras: Literal["stored", "images", "video"]


def to_export_args(
    dataset: Dataset | str | os.PathLike[str], to: To, options: ExportOptions
) -> tuple[pathlib.Path | str, _core.ExportArgs]:
    """Return the path of the dataset, and the options converted for the core."""
    opened = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    selection = to_selection(
        opened, options.get("split"), options.get("episodes"), options.get("filter")
    )
    return opened.path, {
        "to": to,
        "version": opened.version,
        "root": opened.root,
        "selection": json.dumps(selection),
        "on_defect": options.get("on_defect", "error"),
        "cameras": options.get("cameras", "stored"),
        "part": None,
    }


def to_exported(
    result: tuple[tuple[int, int], list[tuple[str, str, str | None, str, bool]]],
) -> Exported:
    """Convert what the core returns."""
    counts, defects = result
    return Exported(*counts, [Defect(*defect) for defect in defects])
