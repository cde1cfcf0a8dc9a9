"""robomimic's own SequenceDataset on its HDF5, as its training script uses it. The variant is `hdf5_cache_mode`.

Vectors stay float64, as stored; images become floats later, on the GPU.
"""

import contextlib
import io
import pathlib
from collections.abc import Iterator
from typing import Any

from batching import Batch, in_workers, stack, to_output
from contract import Recording, Workload
from torch.utils.data import default_collate

from systems.base import System


class Made(System):
    """See the module."""

    packages = ("robomimic", "h5py")

    def refuse(self, recording: Recording, workload: Workload) -> str | None:
        """Accept windows and episodes of robomimic files only."""
        if recording.layout != "robomimic" or workload.kind == "chunk":
            return "robomimic's windows have one length for observations and actions"
        if workload.kind == "episode" and self.variant == "all":
            return "robomimic cannot return whole episodes if everything is cached"
        return None

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Read the recording itself."""
        path.mkdir(parents=True, exist_ok=True)

    def disk_bytes(self, recording: Recording, path: pathlib.Path) -> int:
        """Count the recording."""
        return pathlib.Path(recording.path).stat().st_size

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read with SequenceDataset in a DataLoader."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            dataset = _open(recording, workload, self.variant)
        collate = _Collate(recording, workload)
        if workload.kind == "episode":
            return in_workers(_Episodes(dataset), recording, workload, workers, collate)
        return in_workers(dataset, recording, workload, workers, collate)


def _open(recording: Recording, workload: Workload, cache: str) -> Any:  # noqa: ANN401 (robomimic has no types)
    from robomimic.utils import obs_utils  # noqa: PLC0415 (as all compared packages)
    from robomimic.utils.dataset import SequenceDataset  # noqa: PLC0415

    obs_utils.initialize_obs_utils_with_obs_specs(
        {"obs": {"low_dim": list(recording.vectors), "rgb": recording.cameras}}
    )
    return SequenceDataset(
        hdf5_path=recording.path,
        obs_keys=[*recording.cameras, *recording.vectors],
        dataset_keys=["actions"],
        frame_stack=1,
        seq_length=workload.length if workload.kind == "window" else 1,
        pad_frame_stack=True,
        pad_seq_length=True,
        get_pad_mask=False,
        goal_mode=None,
        hdf5_cache_mode=None if cache == "none" else cache,
        hdf5_use_swmr=True,
        hdf5_normalize_obs=False,
        load_next_obs=False,
    )


class _Collate:
    """Flattens robomimic's nesting, with torch's own collate."""

    def __init__(self, recording: Recording, workload: Workload) -> None:
        self._args = recording, workload

    def __call__(self, samples: list[dict[str, Any]]) -> Batch:
        flat = [{**sample["obs"], "actions": sample["actions"]} for sample in samples]
        if self._args[1].kind == "episode":
            return stack(flat, *self._args)
        return to_output(default_collate(flat), *self._args)


class _Episodes:
    """Whole episodes, with robomimic's own method."""

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 (robomimic has no types)
        self._dataset = dataset

    def __len__(self) -> int:
        return self._dataset.n_demos

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._dataset.get_trajectory_at_index(index)
