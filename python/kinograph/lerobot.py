"""LeRobot's ``LeRobotDataset`` on a dataset of this library: the same options, attributes and items.

    from kinograph.lerobot import LeRobotDataset     # was: from lerobot.datasets.lerobot_dataset import LeRobotDataset

An item is a dict of tensors, under the names of the streams:

    {"observation.state": [6], "action": [50, 6], …                  a key of delta_timestamps has an axis of time
     "observation.images.top": float32 [3, H, W] from 0 to 1,        or [T, 3, H, W]
     "action_is_pad": bool [50],                                     True where the episode has no such frame
     "timestamp", "frame_index", "episode_index", "index", "task_index": single numbers,
     "task": text}

Numbers are float32, int64 or bool, as LeRobot's are. Items need torch; everything else here does without it.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from kinograph._dataset import TOLERANCE_S, Dataset, StreamSummary
from kinograph._errors import InvalidArgumentError, NotFoundError
from kinograph._place import to_place
from kinograph._samples import Samples
from kinograph._stream import is_number

__all__ = ["LeRobotDataset", "LeRobotDatasetMetadata"]

# What every dataset of LeRobot has besides its streams.
_COLUMNS = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
# The streams whose frames are the items; the first that is there.
_ANCHORS = ("action", "actions", "observation.state")


class LeRobotDataset:
    """Items by number, as LeRobot's class of this name gives them.

    >>> from kinograph.lerobot import LeRobotDataset
    >>> dataset = LeRobotDataset("lift.kino", delta_timestamps={"actions": [0.0, 0.05, 0.1]})
    >>> dataset.num_frames, dataset.num_episodes, dataset.fps
    (90, 2, 20)
    >>> dataset.meta.camera_keys
    ['obs/agentview_image']

    ``root`` is the dataset; without it ``repo_id`` is. Nothing is ever downloaded: ``revision``, ``force_cache_sync``,
    ``download_videos`` and ``video_backend`` mean nothing here. ``episodes`` chooses by place, ``episode_filter`` by a
    function of an episode's row in ``meta.episodes``. ``return_uint8`` gives images as bytes from 0 to 255.
    """

    def __init__(  # noqa: PLR0913 (LeRobot's own)
        self,
        repo_id: str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        episodes: Sequence[int] | None = None,
        *,
        episode_filter: Callable[[dict[str, Any]], bool] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = TOLERANCE_S,
        revision: str | None = None,
        force_cache_sync: bool = False,
        download_videos: bool = True,
        video_backend: str | None = None,
        return_uint8: bool = False,
    ) -> None:
        self.repo_id = os.fspath(repo_id)
        #: What is known of the whole dataset.
        self.meta = LeRobotDatasetMetadata(self.repo_id, root)
        self.root = self.meta.root
        self.revision = revision
        self.video_backend = video_backend
        self.image_transforms = image_transforms
        self.delta_timestamps = delta_timestamps
        self.tolerance_s = tolerance_s
        self.return_uint8 = bool(return_uint8)
        self.episodes = self._to_episodes(episodes, episode_filter)
        self._samples = self._to_samples()
        #: The steps of every key of ``delta_timestamps``.
        self.delta_indices = (
            None
            if delta_timestamps is None
            else {
                key: [round(delta * self.fps) for delta in deltas]
                for key, deltas in delta_timestamps.items()
            }
        )
        self._kinds = {key: stream.kind for key, stream in self.meta.streams.items()}
        self._shapes = {key: stream.shape for key, stream in self.meta.streams.items()}

    @property
    def fps(self) -> float:
        """Frames per second."""
        return self.meta.fps

    @property
    def num_frames(self) -> int:
        """How many items there are."""
        return len(self._samples)

    @property
    def num_episodes(self) -> int:
        """How many episodes were chosen."""
        return self.meta.total_episodes if self.episodes is None else len(self.episodes)

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Type and shape of every key, as LeRobot's ``info.json`` has them."""
        return self.meta.features

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """Read an item."""
        from kinograph.torch import to_tensor  # noqa: PLC0415 (the rest does without torch)

        item: dict[str, Any] = {key: to_tensor(value) for key, value in self.read(index).items()}
        if self.image_transforms is not None:
            for key in self.meta.camera_keys:
                item[key] = self.image_transforms(item[key])
        return item

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        """Read the items of a batch; ``DataLoader`` asks for them in one call."""
        return [self[index] for index in indices]

    def read(self, index: SupportsIndex) -> dict[str, Any]:
        """Read an item as numpy arrays, its images not yet transformed.

        >>> dataset = LeRobotDataset("lift.kino")
        >>> item = dataset.read(41)
        >>> item["obs/agentview_image"].shape, item["obs/agentview_image"].dtype
        ((3, 32, 24), dtype('float32'))
        >>> item["episode_index"].item(), item["frame_index"].item(), item["task"]
        (1, 1, 'lift the cube')
        """
        sample = self._samples[index]
        item = {key: self._to_value(key, value) for key, value in sample.items()}
        episode, frame = self._samples.locate(index)
        row = self.meta.episodes[episode]
        task = row["tasks"][0]
        numbers = {
            "timestamp": np.array(frame / self.fps, np.float32),
            "frame_index": np.array(frame),
            "episode_index": np.array(episode),
            "index": np.array(row["dataset_from_index"] + frame),
            "task_index": np.array(self.meta.get_task_index(task)),
        }
        return item | numbers | {"task": task}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return (
            f"LeRobotDataset({str(self.root)!r}: {self.num_episodes} episodes, {self.num_frames} frames at {self.fps} Hz; "
            f"{', '.join(self.meta.streams)})"
        )

    def _to_episodes(
        self,
        episodes: Sequence[int] | None,
        episode_filter: Callable[[dict[str, Any]], bool] | None,
    ) -> list[int] | None:
        """Choose episodes; they come in the order of the dataset, as LeRobot reads them."""
        if episodes is None and episode_filter is None:
            return None
        rows = range(len(self.meta.episodes)) if episodes is None else episodes
        for row in rows:
            if not is_number(row) or not 0 <= operator.index(row) < len(self.meta.episodes):
                raise NotFoundError(
                    f"no episode {row!r}; the dataset has {len(self.meta.episodes)}"
                )
        kept = sorted({operator.index(row) for row in rows})
        if episode_filter is not None:
            kept = [row for row in kept if episode_filter(self.meta.episodes[row])]
        if not kept:
            raise InvalidArgumentError("no episode is chosen by `episodes` and `episode_filter`")
        return kept

    def _to_samples(self) -> Samples:
        return self.meta.dataset.samples(
            delta_timestamps=self.delta_timestamps or {},
            tolerance_s=self.tolerance_s,
            keys=list(self.meta.streams),
            anchor=self.meta.anchor,
            episodes=self.episodes,
        )

    def _to_value(self, key: str, value: Any) -> Any:  # noqa: ANN401 (an array, or texts)
        """Give a value the type and shape that LeRobot gives it."""
        if not isinstance(value, np.ndarray):
            return value
        kind = self._kinds.get(key)
        if kind == "image":
            planes = np.ascontiguousarray(np.moveaxis(value, -1, -3))
            return planes if self.return_uint8 else planes.astype(np.float32) / np.float32(255)
        if kind == "depth":
            shape = self._shapes[key]
            planes = value if len(shape) == 2 else value[..., 0]
            return np.expand_dims(planes.astype(np.float32), -3)
        if self._shapes.get(key) == (1,):
            value = value[..., 0]
        return value.astype(_to_type(value.dtype), copy=False)


class LeRobotDatasetMetadata:
    """What is known of a dataset without its frames, under LeRobot's names."""

    def __init__(self, repo_id: str, root: str | os.PathLike[str] | None = None) -> None:
        self.repo_id = repo_id
        self.root = to_place(repo_id if root is None else root)
        #: The dataset under its own names.
        self.dataset = Dataset(self.root)
        # LeRobot's own columns are computed; an import may have kept them as streams too.
        streams = self.dataset.streams.items()
        self.streams = {k: s for k, s in streams if k not in _COLUMNS and s.variant_of is None}
        if not self.streams:
            raise InvalidArgumentError(f"{self.root} has no streams that LeRobot has items of")
        #: The stream whose frames are the items.
        self.anchor = next((k for k in _ANCHORS if k in self.streams), next(iter(self.streams)))
        self.fps = self._to_fps()
        texts = [task or "" for task in self.dataset.episodes.values("task")]
        self._tasks = {task: number for number, task in enumerate(dict.fromkeys(texts))}
        #: A row per episode: ``episodes[3]``, or a column: ``episodes["length"]``.
        self.episodes = EpisodeRows(self._lengths(), texts)
        #: Statistics by key, such as ``stats["action"]["mean"]``; images are ``[3, 1, 1]``, from 0 to 1.
        self.stats = {key: self._to_stats(key) for key in self.dataset.stats if key in self.streams}

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Type and shape of every key, as LeRobot's ``info.json`` has them."""
        columns = {
            key: {"dtype": dtype, "shape": (1,), "names": None} for key, dtype in _COLUMNS.items()
        }
        return {key: _to_feature(stream) for key, stream in self.streams.items()} | columns

    @property
    def camera_keys(self) -> list[str]:
        """The streams of images."""
        return [key for key, stream in self.streams.items() if stream.kind == "image"]

    @property
    def image_keys(self) -> list[str]:
        """The streams of images: each frame can be read alone."""
        return self.camera_keys

    @property
    def video_keys(self) -> list[str]:
        """Nothing: no stream has LeRobot's rules for video."""
        return []

    @property
    def names(self) -> dict[str, Any]:
        """The names of the axes of every key."""
        return {key: feature["names"] for key, feature in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of every key."""
        return {key: feature["shape"] for key, feature in self.features.items()}

    @property
    def total_episodes(self) -> int:
        """How many episodes there are."""
        return len(self.episodes)

    @property
    def total_frames(self) -> int:
        """How many frames there are in all."""
        return int(self.episodes["length"].sum())

    @property
    def total_tasks(self) -> int:
        """How many different tasks there are."""
        return len(self._tasks)

    @property
    def tasks(self) -> Any:  # noqa: ANN401 (pandas has no types here)
        """The tasks as LeRobot has them: a pandas ``DataFrame`` with a row per task, found by its text."""
        import pandas as pd  # noqa: PLC0415 (optional)

        return pd.DataFrame({"task_index": list(self._tasks.values())}, index=list(self._tasks))

    @property
    def robot_type(self) -> str | None:
        """The robot, if the dataset says which."""
        robot = self.dataset.attributes.get("robot_type")
        return None if robot is None else str(robot)

    def get_task_index(self, task: str) -> int | None:
        """Find the number of a task; ``None`` if there is no such task."""
        return self._tasks.get(task)

    def __repr__(self) -> str:
        return (
            f"LeRobotDatasetMetadata({str(self.root)!r}: {self.total_episodes} episodes, {self.total_frames} frames, "
            f"{self.total_tasks} tasks; {', '.join(self.streams)})"
        )

    def _to_fps(self) -> float:
        rate = self.dataset[0][self.anchor].rate_hz
        if rate is None:
            raise InvalidArgumentError(
                f"`{self.anchor}` has times of its own and no rate, which LeRobot's steps need; use kinograph.torch.Dataset with `windows`"
            )
        return int(rate) if rate == int(rate) else rate

    def _lengths(self) -> list[int]:
        counts = self.dataset.samples({self.anchor: [0]})
        found = dict(zip(counts.episodes.tolist(), counts.counts.tolist(), strict=True))
        return [found.get(row, 0) for row in range(len(self.dataset))]

    def _to_stats(self, key: str) -> dict[str, npt.NDArray[Any]]:
        stats, kind = self.dataset.stats[key], self.streams[key].kind
        names = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")
        found = {name: np.atleast_1d(getattr(stats, name)) for name in names}
        if kind == "image":
            found = {name: value.reshape(-1, 1, 1) / 255 for name, value in found.items()}
        return found | {"count": np.array([stats.frames])}


class EpisodeRows(Sequence[dict[str, Any]]):
    """The episodes as LeRobot lists them: rows by number, columns by name.

    >>> dataset = LeRobotDataset("lift.kino")
    >>> dataset.meta.episodes[1]["length"], dataset.meta.episodes["dataset_to_index"]
    (50, array([40, 90]))
    """

    def __init__(self, lengths: list[int], tasks: list[str]) -> None:
        ends = list(itertools.accumulate(lengths))
        self._columns: dict[str, Any] = {
            "episode_index": np.arange(len(lengths)),
            "tasks": [[task] for task in tasks],
            "length": np.array(lengths, np.int64),
            "dataset_from_index": np.array([0, *ends[:-1]], np.int64)[: len(ends)],
            "dataset_to_index": np.array(ends, np.int64),
        }

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(self._columns["tasks"])

    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: slice) -> list[dict[str, Any]]: ...

    @overload
    def __getitem__(self, key: str) -> Any: ...  # noqa: ANN401 (an array, or lists of texts)

    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        """Give a row, rows, or a column."""
        if isinstance(key, str):
            if key not in self._columns:
                raise NotFoundError(f"no column `{key}`; there are {', '.join(self._columns)}")
            return self._columns[key]
        if isinstance(key, slice):
            return [self[row] for row in range(len(self))[key]]
        row = operator.index(key)
        if not -len(self) <= row < len(self):
            raise NotFoundError(f"no episode {row}; there are {len(self)}")
        return {
            name: column[row] if name == "tasks" else int(column[row])
            for name, column in self._columns.items()
        }


def _to_type(dtype: np.dtype[Any]) -> type[np.generic]:
    """Give the type that an item has: LeRobot's values pass through Python's numbers."""
    if dtype.kind == "b":
        return np.bool_
    return np.int64 if dtype.kind in "iu" else np.float32


def _to_feature(stream: StreamSummary) -> dict[str, Any]:
    if stream.kind == "image":
        names = ["height", "width", "channels"]
        return {"dtype": "image", "shape": stream.shape, "names": names}
    dtype = "string" if stream.dtype is None else str(stream.dtype)
    return {"dtype": dtype, "shape": stream.shape or (1,), "names": None}
