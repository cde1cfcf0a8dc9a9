"""Grain: ArrayRecord with one pickled row per step, shuffled globally, read by threads of this process; libjpeg-turbo decodes."""

import pathlib
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from batching import Batch, stack, to_output
from contract import Recording, Workload

from systems.base import System
from systems.rows import Samples, files_of, to_rows


class Made(System):
    """See the module."""

    packages = ("grain", "array-record")
    follows_index = False

    def files(self, workload: Workload) -> str:
        """Name the files by what was cut in advance."""
        return files_of("grain", workload)

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write one file, as Grain recommends for random access."""
        from array_record.python.array_record_module import ArrayRecordWriter  # noqa: PLC0415 (as all compared packages)

        path.mkdir(parents=True)
        writer = ArrayRecordWriter(str(path / "rows.array_record"), "group_size:1,uncompressed")
        for episode in range(len(recording.lengths)):
            for row in to_rows(recording, workload, episode):
                writer.write(pickle.dumps(row, protocol=5))
        writer.close()

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read through a MapDataset."""
        import grain  # noqa: PLC0415 (as all compared packages)
        from array_record.python.array_record_module import ArrayRecordReader  # noqa: PLC0415

        reader = ArrayRecordReader(
            str(path / "rows.array_record"), options="readahead_buffer_size:0"
        )

        def read(rows: list[int]) -> list[dict[str, Any]]:
            return [pickle.loads(row) for row in reader.read(rows)]

        whole = workload.kind == "episode"
        source = grain.MapDataset.source(Samples(recording, workload, read))
        options = grain.ReadOptions(num_threads=workers, prefetch_buffer_size=2 * workload.batch)
        batches = (
            source.seed(workload.seed)
            .shuffle()
            .repeat()
            .to_iter_dataset(options)
            .batch(workload.batch, drop_remainder=True, batch_fn=list if whole else None)
        )
        for batch in batches:
            if whole:
                yield stack(batch, recording, workload)
                continue
            tensors = {key: torch.from_numpy(np.asarray(value)) for key, value in batch.items()}
            yield to_output(tensors, recording, workload)
