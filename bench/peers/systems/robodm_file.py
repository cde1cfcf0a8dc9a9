"""robodm: one Matroska file per episode, images as video, vectors pickled a step at a time, in a DataLoader. The variant is the video codec.

A sample decodes its whole episode. Its `load(data_slice=…)` would not, but returns a wrong number of frames for video
streams: it drops frames that the decoder buffers and starts between key frames. Its own loader decodes whole episodes too.
"""

import logging
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
from batching import Batch, in_workers, stack
from contract import WORK, Recording, Values, Workload

from systems.base import System

# Takes precedence over the environment's PyAV: see requirements-robodm.txt.
sys.path.insert(0, str(WORK / "robodm"))


class Made(System):
    """See the module."""

    packages = ("robodm", "av")

    def files(self, workload: Workload) -> str:
        """Name the files by codec."""
        return f"robodm-{self.variant}"

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write episode by episode, with robodm's own codec settings."""
        import robodm  # noqa: PLC0415 (as all compared packages)

        logging.getLogger("robodm").setLevel(logging.ERROR)
        path.mkdir(parents=True)
        for episode in range(len(recording.lengths)):
            found = recording.read(episode)
            file = robodm.Trajectory(
                str(path / f"{episode:05}.vla"), mode="w", video_codec=self.variant
            )
            for step in range(len(found["actions"])):
                for key, values in found.items():
                    time_ms = round(1000 * step / recording.rate_hz)
                    file.add(key, np.ascontiguousarray(values[step]), timestamp=time_ms)
            file.close()

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read in a DataLoader."""
        episodes = _Episodes(recording, workload, path)
        return in_workers(
            episodes, recording, workload, workers, lambda found: stack(found, recording, workload)
        )


class _Episodes:
    """Samples by global step, or by episode."""

    def __init__(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        self._recording, self._workload, self._path = recording, workload, path

    def __len__(self) -> int:
        return self._recording.steps

    def __getitem__(self, index: int) -> dict[str, Values]:
        import robodm  # noqa: PLC0415 (as all compared packages)

        logging.getLogger("robodm").setLevel(logging.ERROR)
        recording, workload = self._recording, self._workload
        whole = workload.kind == "episode"
        episode, step = (index, 0) if whole else recording.place(index)
        last = int(recording.lengths[episode]) - 1
        found = robodm.Trajectory(str(self._path / f"{episode:05}.vla"), mode="r").load()
        steps = workload.frame_steps(last, step)
        sample = {camera: found[camera][steps] for camera in recording.cameras}
        if workload.kind != "chunk":
            return sample | {key: found[key][steps] for key in recording.vector_keys}
        sample |= {key: found[key][step] for key in recording.vectors}
        taken, is_pad = workload.action_steps(last, step)
        return sample | {"actions": found["actions"][taken], "is_pad": is_pad}
