"""Lance: one row per step, JPEG as binary columns; one `take` per batch in a thread, libjpeg-turbo decodes each frame once per batch."""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from batching import Batch, in_threads, stack
from contract import Recording, Workload

from systems.base import System
from systems.rows import Samples, files_of, to_rows


class Made(System):
    """See the module."""

    packages = ("pylance", "pyarrow")

    def files(self, workload: Workload) -> str:
        """Name the files by what was cut in advance."""
        return files_of("lance", workload)

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write one table."""
        import lance  # noqa: PLC0415 (as all compared packages)
        import pyarrow  # noqa: PLC0415

        floats = {key: (size,) for key, size in recording.vectors.items()}
        floats["actions"] = (recording.action_dim,)
        if workload.kind == "chunk":
            floats |= {"actions": (workload.actions * recording.action_dim,)}
            floats["is_pad"] = (workload.actions,)
        fields = [(camera, pyarrow.large_binary()) for camera in recording.cameras]
        fields += [(key, pyarrow.list_(pyarrow.float32(), size)) for key, (size,) in floats.items()]
        schema = pyarrow.schema(fields)

        def tables() -> Iterator[Any]:
            for episode in range(len(recording.lengths)):
                rows = to_rows(recording, workload, episode)
                for row in rows:
                    row |= {key: np.float32(row[key]).reshape(-1) for key in floats}
                yield pyarrow.RecordBatch.from_pylist(rows, schema=schema)

        lance.write_dataset(pyarrow.RecordBatchReader.from_batches(schema, tables()), str(path))

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Take rows in threads."""
        import lance  # noqa: PLC0415 (as all compared packages)

        table = lance.dataset(str(path))
        columns = recording.cameras + recording.vector_keys
        columns += ["is_pad"] if workload.kind == "chunk" else []

        def read(rows: list[int]) -> list[dict[str, Any]]:
            taken = table.take(rows, columns=columns)
            arrays = {
                key: taken[key].to_pylist()
                if key in recording.cameras
                else np.stack(taken[key].combine_chunks().to_numpy(zero_copy_only=False))
                for key in columns
            }
            found = [{key: arrays[key][row] for key in columns} for row in range(len(rows))]
            for row in found if workload.kind == "chunk" else []:
                row["actions"] = row["actions"].reshape(workload.actions, -1)
                row["is_pad"] = row["is_pad"] > 0
            return found

        def make(indices: list[int]) -> Batch:
            samples = Samples(recording, workload, read)
            return stack([samples[index] for index in indices], recording, workload)

        return in_threads(make, recording, workload, workers)
