"""LitData from a local folder, one item per step, JPEG decoded by libjpeg-turbo in a DataLoader.

LitData has no windows: they are assembled from `StreamingDataset[i]`, uniformly at random, which it is not designed for.
"""

import functools
import pathlib
from collections.abc import Iterator
from typing import Any

from batching import Batch, in_workers, stack
from contract import Recording, Workload, load_recording

from systems.base import System
from systems.rows import Samples, files_of, to_rows


def give_rows(episode: int, workload: Workload) -> Iterator[dict[str, Any]]:
    """Yield an episode's rows in the process that writes them."""
    yield from to_rows(load_recording(workload.recording), workload, episode)


class Made(System):
    """See the module."""

    packages = ("litdata",)

    def files(self, workload: Workload) -> str:
        """Name the files by what was cut in advance."""
        return files_of("litdata", workload)

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write files of 64 MB."""
        import litdata  # noqa: PLC0415 (as all compared packages)

        litdata.optimize(
            fn=functools.partial(give_rows, workload=workload),
            inputs=list(range(len(recording.lengths))),
            output_dir=str(path),
            num_workers=1,
            chunk_bytes="64MB",
            keep_data_ordered=True,
        )

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read in a DataLoader; each worker opens the folder itself."""
        samples = Samples(recording, workload, _Items(path))
        return in_workers(
            samples, recording, workload, workers, lambda found: stack(found, recording, workload)
        )


class _Items:
    """The stored items, opened on first use."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path, self._stored = path, None

    def __call__(self, rows: list[int]) -> list[dict[str, Any]]:
        if self._stored is None:
            import litdata  # noqa: PLC0415 (as all compared packages)

            self._stored = litdata.StreamingDataset(str(self._path), shuffle=False)
        return [self._stored[row] for row in rows]
