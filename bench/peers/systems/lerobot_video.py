"""LeRobot's own dataset (v3: parquet and mp4), decoded by torchcodec, in a DataLoader. The variant is the video codec.

Images are always float32 from 0 to 1. Whole episodes are read with its own column access and video queries.
"""

import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import torch
from batching import Batch, in_workers
from contract import Recording, Workload
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

from systems.base import System


class Made(System):
    """See the module."""

    packages = ("lerobot", "torchcodec", "datasets")

    def refuse(self, recording: Recording, workload: Workload) -> str | None:
        """Accept float output only."""
        return "returns float32 only" if workload.output == "u8" else None

    def files(self, workload: Workload) -> str:
        """Name the files by codec."""
        return f"lerobot-{self.variant}"

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Record episode by episode, with LeRobot's own codec settings."""
        from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: PLC0415 (as all compared packages)

        shutil.rmtree(path, ignore_errors=True)
        names = ["height", "width", "channels"]
        features: dict[str, Any] = {
            f"observation.images.{camera}": {
                "dtype": "video",
                "shape": (*recording.size, 3),
                "names": names,
            }
            for camera in recording.cameras
        }
        sizes = {f"observation.{key}": size for key, size in recording.vectors.items()}
        for key, size in (sizes | {"action": recording.action_dim}).items():
            features[key] = {"dtype": "float32", "shape": (size,), "names": None}
        dataset = LeRobotDataset.create(
            repo_id=f"peers/{recording.name}",
            fps=int(recording.rate_hz),
            root=path,
            features=features,
            vcodec=self.variant,
            image_writer_threads=2,
        )
        for episode in range(len(recording.lengths)):
            found = recording.read(episode)
            for step in range(len(found["actions"])):
                frame = {
                    f"observation.images.{key}"
                    if key in recording.cameras
                    else f"observation.{key}": value[step]
                    for key, value in found.items()
                    if key != "actions"
                }
                dataset.add_frame(frame | {"action": found["actions"][step], "task": "task"})
            dataset.save_episode()
        dataset.finalize()

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read with LeRobotDataset in a DataLoader."""
        from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: PLC0415 (as all compared packages)

        dataset = LeRobotDataset(
            f"peers/{recording.name}",
            root=path,
            delta_timestamps=_deltas(recording, workload),
            video_backend="torchcodec",
        )
        if workload.kind == "episode":
            episodes = _Episodes(dataset, recording)
            return in_workers(episodes, recording, workload, workers, _pad)
        return in_workers(dataset, recording, workload, workers, _Collate(recording))


def _deltas(recording: Recording, workload: Workload) -> dict[str, list[float]] | None:
    cameras = [f"observation.images.{camera}" for camera in recording.cameras]
    if workload.kind == "window":
        seconds = [step / recording.rate_hz for step in range(workload.length)]
        keys = [*cameras, *(f"observation.{key}" for key in recording.vectors), "action"]
        return dict.fromkeys(keys, seconds)
    if workload.kind == "chunk":
        ahead = [step / recording.rate_hz for step in range(workload.actions)]
        behind = [step / recording.rate_hz for step in range(1 - workload.frames, 1)]
        return {"action": ahead} | {camera: behind for camera in cameras if workload.frames > 1}
    return None


class _Collate:
    """Converts LeRobot's keys to those of the comparison, after torch's own collate."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __call__(self, samples: list[dict[str, Any]]) -> Batch:
        given = default_collate(samples)
        batch: Batch = {"actions": given["action"]}
        for camera in self._recording.cameras:
            images = given[f"observation.images.{camera}"]
            batch[camera] = images if images.dim() == 5 else images.unsqueeze(1)
        for key in self._recording.vectors:
            batch[key] = given[f"observation.{key}"]
        if "action_is_pad" in given:
            batch["is_pad"] = given["action_is_pad"]
        return batch


class _Episodes:
    """Whole episodes, for which LeRobot has no API."""

    def __init__(self, dataset: Any, recording: Recording) -> None:  # noqa: ANN401 (LeRobot's types are not here)
        self._dataset, self._recording = dataset, recording

    def __len__(self) -> int:
        return len(self._recording.lengths)

    def __getitem__(self, index: int) -> Batch:
        dataset, recording = self._dataset, self._recording
        dataset._ensure_hf_dataset_loaded()
        about = dataset.meta.episodes[index]
        rows = dataset.hf_dataset[about["dataset_from_index"] : about["dataset_to_index"]]
        times = [float(time) for time in rows["timestamp"]]
        wanted = {f"observation.images.{camera}": times for camera in recording.cameras}
        frames = dataset._query_videos(wanted, index)
        sample = {camera: frames[f"observation.images.{camera}"] for camera in recording.cameras}
        for key in recording.vectors:
            sample[key] = torch.stack(list(rows[f"observation.{key}"]))
        return sample | {"actions": torch.stack(list(rows["action"]))}


def _pad(samples: list[Batch]) -> Batch:
    batch: Batch = {
        key: pad_sequence([sample[key] for sample in samples], batch_first=True)
        for key in samples[0]
    }
    batch["lengths"] = torch.tensor([len(sample["actions"]) for sample in samples])
    return batch
