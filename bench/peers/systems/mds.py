"""MosaicML Streaming (MDS) from a local folder, one sample per step, JPEG decoded by libjpeg-turbo in a DataLoader.

MDS has no windows: they are assembled from `StreamingDataset[i]`, uniformly at random.
"""

import pathlib
from collections.abc import Iterator

from batching import Batch, in_workers, stack
from contract import Recording, Workload

from systems.base import System
from systems.rows import Samples, files_of, to_rows


class Made(System):
    """See the module."""

    packages = ("mosaicml-streaming",)

    def files(self, workload: Workload) -> str:
        """Name the files by what was cut in advance."""
        return files_of("mds", workload)

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write shards of 64 MB."""
        from streaming import MDSWriter  # noqa: PLC0415 (as all compared packages)

        columns = dict.fromkeys(recording.cameras, "bytes")
        columns |= dict.fromkeys(recording.vector_keys, "ndarray:float32")
        if workload.kind == "chunk":
            columns["is_pad"] = "ndarray:bool"
        with MDSWriter(out=str(path), columns=columns, size_limit=1 << 26) as writer:
            for episode in range(len(recording.lengths)):
                for row in to_rows(recording, workload, episode):
                    writer.write(row)

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read in a DataLoader."""
        from streaming import StreamingDataset  # noqa: PLC0415 (as all compared packages)
        from streaming.base.util import clean_stale_shared_memory  # noqa: PLC0415

        clean_stale_shared_memory()
        stored = StreamingDataset(local=str(path), shuffle=False, batch_size=1)
        samples = Samples(recording, workload, lambda rows: [stored[row] for row in rows])
        return in_workers(
            samples, recording, workload, workers, lambda found: stack(found, recording, workload)
        )
