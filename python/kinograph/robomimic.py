"""robomimic's ``SequenceDataset`` on a dataset of this library: the same arguments, the same items.

    from kinograph.robomimic import SequenceDataset     # was: from robomimic.utils.dataset import SequenceDataset

An item is a dict of numpy arrays, nested as robomimic nests it:

    {"actions": [T, 7], "rewards": [T], …                    the dataset keys; T = frame_stack - 1 + seq_length
     "obs": {"object": [T, 10], "agentview_image": [T, 84, 84, 3], …},
     "next_obs": {…},                                         with load_next_obs
     "goal_obs": {"object": [10], …},                         with goal_mode="last"
     "pad_mask": [T, 1] in each of them,                      with get_pad_mask
     "index": number of the item}                             with action_keys, as from robomimic 0.4 on

What differs: a dataset without ``next_obs`` has the observations one step later, and a value that cannot be served is an
``InvalidArgumentError`` when the dataset is made and no failing assertion.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph._arguments import to_list, to_whole, to_word
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError, NotFoundError
from kinograph._place import to_place
from kinograph._robomimic_cache import FrameCache
from kinograph._robomimic_options import is_newer, to_named
from kinograph._robomimic_stats import merged_stats, to_scale
from kinograph._samples import Samples
from kinograph._stream import is_number

__all__ = ["SequenceDataset"]

Array: TypeAlias = npt.NDArray[Any]

# What robomimic adds to the standard deviation of an observation.
_OBS_STD_EXTRA = 1e-3


class SequenceDataset:
    """Sequences of demonstrations by number, as robomimic's class of this name gives them.

    >>> from kinograph.robomimic import SequenceDataset
    >>> dataset = SequenceDataset(
    ...     "lift.kino", obs_keys=["joints", "agentview_image"], dataset_keys=["actions"], frame_stack=2, seq_length=10
    ... )
    >>> item = dataset[0]
    >>> item["actions"].shape, item["obs"]["agentview_image"].shape
    ((11, 7), (11, 32, 24, 3))

    The arguments are robomimic's, by place or by name, of version 0.3 or, with ``action_keys`` and ``action_config``, of
    versions from 0.4 on. ``hdf5_path`` is the dataset. ``hdf5_cache_mode`` keeps numbers in memory (``"low_dim"``) or images
    too (``"all"``: each frame once), and makes float32 of what ``dataset_keys`` names, as it does there. Under ``"low_dim"`` up to
    256 MiB of decoded images are kept as well, in each process. ``hdf5_use_swmr`` means nothing here.
    """

    def __init__(
        self,
        hdf5_path: str | os.PathLike[str] | Dataset,
        obs_keys: Sequence[str],
        *arguments: Any,  # noqa: ANN401 (robomimic's, of either version)
        **options: Any,  # noqa: ANN401
    ) -> None:
        self._is_newer = is_newer(arguments, options)
        self._take(to_named(self._is_newer, (hdf5_path, obs_keys, *arguments), options))
        self._dataset = _to_dataset(hdf5_path)
        #: The demonstrations by id, in the order of their numbers.
        self.demos = _to_demos(self._dataset, self.filter_by_attribute, self.demo_limit)
        self._samples = self._to_samples()
        self._to_window = self._find_samples()
        self._cache = (
            FrameCache(self._samples, self.hdf5_cache_mode) if self.hdf5_cache_mode else None
        )
        self._lang_emb = None if self.lang is None else _to_embedding(self.lang)
        self.obs_normalization_stats = self._to_obs_stats() if self.hdf5_normalize_obs else None
        self.action_normalization_stats: dict[str, dict[str, Array]] | None = None

    def _take(self, options: Mapping[str, Any]) -> None:
        """Take the arguments under the names that robomimic's code reads."""
        given = options.get
        self.hdf5_path = options["hdf5_path"]
        self.obs_keys = _to_keys("obs_keys", options["obs_keys"])
        self.dataset_keys = _to_keys("dataset_keys", options["dataset_keys"])
        self.action_keys = _to_keys("action_keys", given("action_keys") or ())
        self.action_config = dict(given("action_config") or {})
        self.n_frame_stack = to_whole("frame_stack", options["frame_stack"], least=1)
        self.seq_length = to_whole("seq_length", options["seq_length"], least=1)
        self.pad_frame_stack = bool(options["pad_frame_stack"])
        self.pad_seq_length = bool(options["pad_seq_length"])
        self.get_pad_mask = bool(options["get_pad_mask"])
        self.goal_mode = options["goal_mode"]
        self.hdf5_cache_mode = options["hdf5_cache_mode"]
        self.hdf5_use_swmr = options["hdf5_use_swmr"]
        self.hdf5_normalize_obs = bool(options["hdf5_normalize_obs"])
        self.filter_by_attribute = options["filter_by_attribute"]
        self.load_next_obs = bool(options["load_next_obs"])
        self.lang = given("lang")
        self.demo_limit = given("demo_limit")
        if self.goal_mode is not None:
            to_word("goal_mode", self.goal_mode, ("last",))
            if not self.load_next_obs:
                raise InvalidArgumentError(
                    "goal_mode='last' is the last of next_obs; give load_next_obs=True with it"
                )
        if self.hdf5_cache_mode is not None:
            to_word("hdf5_cache_mode", self.hdf5_cache_mode, ("all", "low_dim"))
        self.dataset_keys += tuple(key for key in self.action_keys if key not in self.dataset_keys)

    @property
    def n_demos(self) -> int:
        """How many demonstrations there are."""
        return len(self.demos)

    @property
    def total_num_sequences(self) -> int:
        """How many items there are."""
        return len(self._to_window)

    def __len__(self) -> int:
        return len(self._to_window)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Read an item; a negative number counts from the end."""
        return self.get_item(index)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))

    def get_item(self, index: int) -> dict[str, Any]:
        """Read an item."""
        if not is_number(index) or not -len(self) <= index < len(self):
            raise NotFoundError(f"no item {index!r}; there are {len(self)}")
        window = int(self._to_window[index])
        sample = self._samples[window] if self._cache is None else self._cache.read(window)
        steps = self.n_frame_stack - 1 + self.seq_length
        mask = sample.pop("pad_mask", None)
        item: dict[str, Any] = {
            key: self._of_dataset(sample, key, steps) for key in self.dataset_keys
        }
        groups = ["obs"] + ["next_obs"] * self.load_next_obs + ["goal_obs"] * bool(self.goal_mode)
        for group in groups:
            item[group] = {key: sample[f"{group}/{key}"] for key in self.obs_keys}
        if mask is not None:
            item["pad_mask"] = mask
            for group in groups:
                item[group]["pad_mask"] = np.array([True]) if group == "goal_obs" else mask.copy()
        return self._finish(item, index % len(self), groups)

    def _finish(self, item: dict[str, Any], index: int, groups: list[str]) -> dict[str, Any]:
        """Do what the two versions do differently."""
        if not self._is_newer:
            if self.obs_normalization_stats is not None:
                for group in groups:
                    for key, stats in self.obs_normalization_stats.items():
                        values = item[group][key]
                        mean, std = (
                            stats[name] if group != "goal_obs" else stats[name][0]
                            for name in ("mean", "std")
                        )
                        item[group][key] = (values - mean) / std
            return item
        item["actions"] = self._to_actions(item)
        item["index"] = index
        if self._lang_emb is not None:
            item["obs"]["lang_emb"] = np.tile(self._lang_emb, (len(item["actions"]), 1))
        return item

    def get_dataset_sampler(self) -> None:
        """Say that any order will do, as robomimic's class does."""
        return

    def get_obs_normalization_stats(self) -> dict[str, dict[str, Array]]:
        """Give mean and standard deviation of every observation, of shape ``[1, …]``."""
        if self.obs_normalization_stats is None:
            raise InvalidArgumentError(
                "observations are not normalised; give hdf5_normalize_obs=True"
            )
        return {key: dict(stats) for key, stats in self.obs_normalization_stats.items()}

    def get_action_stats(self) -> dict[str, dict[str, Any]]:
        """Give number, mean, squared difference, minimum and maximum of every action key, for mixtures too."""
        return {
            key: merged_stats(
                self._read_stream(demo, key).astype(np.float32) for demo in self.demos
            )
            for key in self.action_keys
        }

    def get_action_normalization_stats(self) -> dict[str, dict[str, Array]]:
        """Give scale and offset of every action key, as ``action_config`` asks for."""
        if self.action_normalization_stats is None:
            self.action_normalization_stats = {
                key: to_scale(key, stats, self.action_config.get(key, {}).get("normalization"))
                for key, stats in self.get_action_stats().items()
            }
        return self.action_normalization_stats

    def set_action_normalization_stats(self, stats: dict[str, dict[str, Array]]) -> None:
        """Normalise with these from now on, such as those of a mixture."""
        self.action_normalization_stats = stats

    def get_trajectory_at_index(self, index: int) -> dict[str, Any]:
        """Read a whole demonstration, by its place in ``demos``."""
        demo = self.demos[index]
        front = self.n_frame_stack - 1
        if front and not self.pad_frame_stack:
            raise InvalidArgumentError(
                "a whole demonstration has nothing before its first frame; give pad_frame_stack=True"
            )
        length = len(self._dataset[demo][self._anchor()])
        frames = np.maximum(np.arange(-front, length), 0)
        item: dict[str, Any] = {
            key: self._cast(self._read_stream(demo, key))[frames] for key in self.dataset_keys
        }
        groups = {"obs": 0} | ({"next_obs": 1} if self.load_next_obs else {})
        for group, later in groups.items():
            item[group] = {key: self._read_obs(demo, key, later) for key in self.obs_keys}
        if self.get_pad_mask:
            item["pad_mask"] = (np.arange(-front, length) >= 0)[:, None]
            for group in groups:
                item[group]["pad_mask"] = np.ones((length, 1), bool)
        return item | {"ep": demo}

    def __repr__(self) -> str:
        return (
            f"SequenceDataset({self.n_demos} demonstrations, {len(self)} items of {self.seq_length} steps "
            f"and {self.n_frame_stack} stacked frames: {', '.join((*self.dataset_keys, *self.obs_keys))})"
        )

    def _anchor(self) -> str:
        """Name the stream whose frames are the steps."""
        there = [key for key in self.dataset_keys if key in self._dataset.streams]
        if not there:
            raise InvalidArgumentError(
                f"none of the dataset_keys {', '.join(self.dataset_keys)} is a stream; there are {', '.join(self._dataset.streams)}"
            )
        return "actions" if "actions" in there else there[0]

    def _to_samples(self) -> Samples:
        streams = self._dataset.streams
        self._anchor()
        missing = [key for key in self.dataset_keys if key not in streams]
        if missing and self.hdf5_cache_mode is None:
            # With a cache robomimic takes zeros for it.
            raise NotFoundError(f"no stream `{missing[0]}`; there are {', '.join(streams)}")
        return self._dataset.samples(
            keys=[
                *(key for key in self.dataset_keys if key in streams),
                *(f"obs/{key}" for key in self.obs_keys),
            ],
            seq_length=self.seq_length,
            frame_stack=self.n_frame_stack,
            pad_seq_length=self.pad_seq_length,
            pad_frame_stack=self.pad_frame_stack,
            next_obs=self.load_next_obs,
            goal=self.goal_mode == "last",
            masks="pad_mask" if self.get_pad_mask else "off",
            episodes=self.demos,
        )

    def _find_samples(self) -> npt.NDArray[np.int64]:
        """Find the window of every item: demonstrations follow each other by their numbers, not as they are stored."""
        counts = dict(
            zip(self._samples.episodes.tolist(), self._samples.counts.tolist(), strict=True)
        )
        starts = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
        rows = [self._dataset[demo].index for demo in self.demos]
        for demo, row in zip(self.demos, rows, strict=True):
            if not counts.get(row):
                raise InvalidArgumentError(
                    f"demonstration `{demo}` is too short for frame_stack={self.n_frame_stack} and seq_length={self.seq_length}; "
                    "pad it (pad_frame_stack=True, pad_seq_length=True), or leave it out by a filter"
                )
        parts = [np.arange(starts[row], starts[row] + counts[row]) for row in rows]
        return np.concatenate(parts).astype(np.int64)

    def _of_dataset(self, sample: dict[str, Any], key: str, steps: int) -> Any:  # noqa: ANN401 (an array, or texts)
        if key not in sample:
            return np.zeros((steps, 1), np.float32)
        return self._cast(sample[key])

    def _cast(self, values: Any) -> Any:  # noqa: ANN401 (an array, or texts)
        if self.hdf5_cache_mode is None or not isinstance(values, np.ndarray):
            return values
        return values.astype(np.float32, copy=False)

    def _to_actions(self, item: dict[str, Any]) -> Array:
        stats = self.get_action_normalization_stats()
        parts = []
        for key in self.action_keys:
            values = item[key].reshape(len(item[key]), -1)
            scale, offset = (stats[key][name].reshape(1, -1) for name in ("scale", "offset"))
            parts.append((values - offset) / scale)
        return np.concatenate(parts, axis=-1)

    def _to_obs_stats(self) -> dict[str, dict[str, Array]]:
        for key in self.obs_keys:
            if self._dataset.streams[f"obs/{key}"].kind in ("image", "depth"):
                raise InvalidArgumentError(
                    f"hdf5_normalize_obs: `{key}` is images, which are normalised later; leave them out of obs_keys or normalise in the policy"
                )
        names = ("offset", "scale") if self._is_newer else ("mean", "std")
        found = {}
        for key in self.obs_keys:
            stats = merged_stats(
                self._read_stream(demo, f"obs/{key}").astype(np.float32) for demo in self.demos
            )
            std = np.sqrt(stats["sqdiff"] / stats["n"]) + _OBS_STD_EXTRA
            found[key] = dict(zip(names, (stats["mean"], std.astype(np.float32)), strict=True))
        return found

    def _read_stream(self, demo: str, name: str) -> Array:
        stream = self._dataset[demo]
        if name not in stream:
            return np.zeros((len(stream[self._anchor()]), 1), np.float32)
        values: Array = stream[name][:]
        return values

    def _read_obs(self, demo: str, key: str, later: int) -> Array:
        """Read an observation's frames, or those a step later if they are not stored as ``next_obs``."""
        stored = f"next_obs/{key}"
        if later and stored in self._dataset[demo]:
            return self._read_stream(demo, stored)
        values = self._read_stream(demo, f"obs/{key}")
        return values[np.minimum(np.arange(later, len(values) + later), len(values) - 1)]


def _to_dataset(path: str | os.PathLike[str] | Dataset) -> Dataset:
    if isinstance(path, Dataset):
        return path
    path = to_place(path)
    if isinstance(path, str):
        return Dataset(path)
    path = path.expanduser()
    if path.suffix in (".hdf5", ".h5") and path.is_file():
        raise InvalidArgumentError(
            f"{path} is an HDF5 file; pack it first: kinograph.pack({str(path)!r}, {str(path.with_suffix('.kino'))!r})"
        )
    return Dataset(path)


def _to_demos(dataset: Dataset, split: str | None, limit: int | None) -> list[str]:
    """Name the demonstrations by their numbers; ids without numbers stay in the order of the dataset."""
    ids = dataset.episodes.values("id")
    if split is not None:
        splits = dataset.episodes.values("splits")
        known = sorted({name for names in splits for name in names})
        ids = [name for name, names in zip(ids, splits, strict=True) if split in names]
        if not ids:
            raise NotFoundError(f"no split `{split}`; there are {', '.join(known) or 'none'}")
    if all(name[5:].isdecimal() for name in ids):
        ids = sorted(ids, key=lambda name: int(name[5:]))
    return ids if limit is None else ids[: to_whole("demo_limit", limit, least=1)]


def _to_keys(name: str, keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(key) for key in to_list(name, keys, "keys"))


def _to_embedding(text: str) -> Array:
    """Ask robomimic for the embedding of a text: it has the model."""
    try:
        from robomimic.utils import lang_utils  # noqa: PLC0415 (large, and rarely needed)
    except ImportError as error:
        raise InvalidArgumentError(
            f"lang={text!r} needs the language model of robomimic 0.4 or newer: {error}"
        ) from None
    embedding: Array = lang_utils.get_lang_emb(text)
    return embedding
