"""NVIDIA DALI, CPU pipeline (no GPU): the files of the JPEG store through `external_source` and `decoders.image`.

Vectors are gathered in Python. DALI has no windows: every frame of every window is decoded.
"""

import pathlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from batching import Batch
from contract import Recording, Workload, index_batches

from systems.base import System
from systems.jpeg_store import Store, write_store


class Made(System):
    """See the module."""

    packages = ("nvidia-dali-cuda130",)

    def files(self, workload: Workload) -> str:
        """Share the files of the JPEG store."""
        return "jpeg_store"

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write the JPEG store."""
        write_store(recording, path)

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Run the pipeline batch by batch."""
        store = Store(recording, workload, path)
        store.open()
        rest: deque[Any] = deque()
        pipeline = _pipeline(store, rest, workers)
        while True:
            outputs = pipeline.run()
            rows, batch = rest.popleft()
            for camera, output in zip(recording.cameras, outputs, strict=True):
                images = torch.from_dlpack(output.as_tensor())
                if workload.kind != "episode":
                    # DALI reuses its buffers.
                    shape = (len(rows), len(rows[0]), *images.shape[1:])
                    batch[camera] = images.reshape(shape).clone()
                    continue
                parts = torch.split(images, [len(row) for row in rows])
                batch[camera] = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
            yield batch


def _pipeline(store: Store, rest: deque[Any], threads: int) -> Any:  # noqa: ANN401 (DALI has no types)
    from nvidia.dali import fn, pipeline_def, types  # noqa: PLC0415 (like all compared packages)

    recording, workload = store.recording, store.workload

    def source() -> Iterator[tuple[list[np.ndarray], ...]]:
        for indices in index_batches(recording, workload):
            rows, batch = store.rows(indices)
            rest.append((rows, batch))
            flat = np.concatenate(rows)
            yield tuple(
                [np.frombuffer(store.encoded(camera, row), np.uint8) for row in flat]
                for camera in recording.cameras
            )

    longest = {"window": workload.length, "chunk": workload.frames}
    frames = longest.get(workload.kind, int(recording.lengths.max()))

    @pipeline_def(batch_size=workload.batch * frames, num_threads=threads, device_id=None)
    def make() -> tuple[Any, ...]:
        encoded = fn.external_source(
            source=source(), num_outputs=len(recording.cameras), batch=True
        )
        images = [fn.decoders.image(one, device="cpu", output_type=types.RGB) for one in encoded]
        if workload.output == "f32":
            images = [
                fn.crop_mirror_normalize(
                    one, dtype=types.FLOAT, output_layout="CHW", mean=[0.0] * 3, std=[255.0] * 3
                )
                for one in images
            ]
        return tuple(images)

    made = make()
    made.build()
    return made
