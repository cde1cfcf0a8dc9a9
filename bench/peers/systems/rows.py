"""Samples from a store with one row per step, as in MDS, LitData, Lance and Grain.

A system here is a function from row numbers to rows: dicts with encoded images and vectors.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from batching import decode_jpeg, read_as_jpeg
from contract import Recording, Values, Workload

Read = Callable[[list[int]], list[dict[str, Any]]]


class Samples:
    """Samples by global step, or by episode: rows are read, each image is decoded once per sample."""

    def __init__(self, recording: Recording, workload: Workload, read: Read) -> None:
        self._recording, self._workload, self._read = recording, workload, read

    def __len__(self) -> int:
        whole = self._workload.kind == "episode"
        return len(self._recording.lengths) if whole else self._recording.steps

    def __getitem__(self, index: Any) -> dict[str, Values]:  # noqa: ANN401 (any integer type)
        recording, workload = self._recording, self._workload
        whole = workload.kind == "episode"
        episode, step = (int(index), 0) if whole else recording.place(int(index))
        start, last = int(recording.starts[episode]), int(recording.lengths[episode]) - 1
        steps = workload.frame_steps(last, step)
        needed, back = np.unique(steps, return_inverse=True)
        rows = self._read([start + int(one) for one in needed])
        sample: dict[str, Values] = {
            camera: np.stack([decode_jpeg(row[camera]) for row in rows])[back]
            for camera in recording.cameras
        }
        if workload.kind == "chunk":
            sample |= {key: np.asarray(rows[-1][key]) for key in recording.vectors}
            sample |= {key: np.asarray(rows[-1][key]) for key in ("actions", "is_pad")}
        else:
            for key in recording.vector_keys:
                sample[key] = np.stack([np.asarray(row[key]) for row in rows])[back]
        return sample | {"ep": np.int64(episode), "t": np.int64(step)}


def to_rows(recording: Recording, workload: Workload, episode: int) -> list[dict[str, Any]]:
    """Return the rows of an episode; those of W2 have their action chunk cut in advance."""
    vectors, images = read_as_jpeg(recording, episode)
    last = int(recording.lengths[episode]) - 1
    rows = []
    for step in range(last + 1):
        row: dict[str, Any] = {camera: encoded[step] for camera, encoded in images.items()}
        row |= {key: values[step] for key, values in vectors.items()}
        if workload.kind == "chunk":
            taken, is_pad = workload.action_steps(last, step)
            row["actions"] = np.ascontiguousarray(vectors["actions"][taken])
            row["is_pad"] = is_pad
        rows.append(row)
    return rows


def files_of(name: str, workload: Workload) -> str:
    """Name the files by what was cut in advance."""
    return f"{name}-c{workload.actions}" if workload.kind == "chunk" else name
