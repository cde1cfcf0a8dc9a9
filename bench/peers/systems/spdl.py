"""SPDL: a pipeline of threads that decodes the images of the JPEG store with FFmpeg's libraries, a batch at a time."""

import pathlib
from collections.abc import Iterator

import numpy as np
import torch
from batching import Batch, to_output
from contract import Recording, Workload, index_batches

from systems.base import System
from systems.jpeg_store import Store, write_store


class Made(System):
    """See the module."""

    packages = ("spdl-core", "spdl-io")

    def refuse(self, recording: Recording, workload: Workload) -> str | None:
        """Accept windows of one length only; padding is not implemented here."""
        return "implemented for windows of one length" if workload.kind == "episode" else None

    def files(self, workload: Workload) -> str:
        """Share the files of the JPEG store."""
        return "jpeg_store"

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write the JPEG store."""
        write_store(recording, path)

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Run the pipeline."""
        import spdl.io  # noqa: PLC0415 (as all compared packages)
        from spdl.pipeline import PipelineBuilder  # noqa: PLC0415

        store = Store(recording, workload, path)
        store.open()

        def make(indices: list[int]) -> Batch:
            rows, batch = store.rows(indices)
            needed, back = np.unique(np.concatenate(rows), return_inverse=True)
            for camera in recording.cameras:
                encoded = [bytes(store.encoded(camera, row)) for row in needed]
                images = spdl.io.to_torch(
                    spdl.io.load_image_batch(encoded, width=None, height=None, pix_fmt="rgb24")
                )
                shape = (len(rows), len(rows[0]), *recording.size, 3)
                batch[camera] = images[torch.from_numpy(back)].view(shape)
            return to_output(batch, recording, workload)

        pipeline = (
            PipelineBuilder()
            .add_source(index_batches(recording, workload))
            .pipe(make, concurrency=workers, output_order="input")
            .add_sink(2 * workers)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline
