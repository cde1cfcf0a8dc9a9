"""Kinograph. The variant is the plan and the pool.

`jpeg 0.1` shuffles in groups of a tenth of the decoded dataset and holds two of them, the current and the next; `jpeg 1`
holds everything. The order is the loader's own, not the comparison's; for the check, the loader reports which samples it returned.
With everything in the pool, only the first epoch decodes: timing starts with the second epoch, and the cost of the
first is recorded separately (`warm_cpu_ms`).
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from batching import Batch
from contract import JPEG_QUALITY, Recording, Workload

from systems.base import System

PLANS = {
    "lossless": None,
    # Groups of eight frames stored as changes, also lossless: smaller, but more expensive for a single frame.
    "groups": {"stream": [{"kind": "image", "codec": "camera:level=3,group=8"}]},
    "jpeg": {"stream": [{"kind": "image", "codec": f"jpeg:q={JPEG_QUALITY},sub=420"}]},
    "av1": {"stream": [{"kind": "image", "codec": "av1"}]},
}


class Made(System):
    """See the module."""

    packages = ("kinograph",)
    follows_index = False

    def __init__(self, name: str, variant: str) -> None:
        super().__init__(name, variant)
        self._plan, pool = variant.split()
        self._pool = float(pool)
        self._loader: Any = None
        self._before: Any = None

    def files(self, workload: Workload) -> str:
        """Name the files by their plan."""
        return f"{self._plan}.kino"

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write episodes, with vectors as float32 like the other systems."""
        import kinograph  # noqa: PLC0415 (as all compared packages)

        with kinograph.Writer(path, plan=PLANS[self._plan]) as writer:
            for episode in range(len(recording.lengths)):
                streams = recording.read(episode)
                name = f"episode_{episode}"
                writer.add_episode(streams, rate_hz=recording.rate_hz, id=name)

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Iterate over the loader, epoch after epoch."""
        import kinograph.torch  # noqa: PLC0415 (as all compared packages)

        dataset = kinograph.open(path)
        samples = dataset.samples(
            _request(kinograph, recording, workload),
            anchor="episode" if workload.kind == "episode" else "actions",
            masks="off" if workload.kind == "window" else "is_pad",
        )
        self._loader = kinograph.torch.Loader(
            samples,
            batch_size=workload.batch,
            shuffle=kinograph.Shuffle(fraction=self._pool),
            memory=self._memory(recording),
            threads=workers,
            images=kinograph.Images(
                layout="chw" if workload.output == "f32" else "hwc",
                dtype="float32" if workload.output == "f32" else "uint8",
            ),
        )
        self._recording, self._workload = recording, workload
        return self._forever()

    def _memory(self, recording: Recording) -> int:
        """Return memory for everything, or for two groups: the current and the next."""
        episode = recording.decoded_bytes // recording.steps * int(recording.lengths.max())
        budget = recording.decoded_bytes * min(2.1 * self._pool, 1.1)
        return int(budget) + 2 * episode

    def _forever(self) -> Iterator[Batch]:
        while True:
            for batch in self._loader:
                if self._workload.kind == "chunk":
                    batch["is_pad"] = batch.pop("actions_is_pad")
                if self._workload.kind == "episode":
                    batch["lengths"] = (~batch["actions_is_pad"]).sum(1)
                yield batch

    def places(self, number: int) -> dict[str, list[int]]:
        """Return episodes and steps of a batch."""
        windows = self._loader.order.sources[0].samples
        found = [windows.locate(one) for one in self._loader.order.batch(number)["sample"]]
        ids = [windows.dataset[place.episode].id for place in found]
        return {
            "ep": [int(name.rpartition("_")[2]) for name in ids],
            "t": [0 if self._workload.kind == "episode" else place.anchor for place in found],
        }

    def warm_batches(self, recording: Recording, workload: Workload) -> int:
        """Skip the first epoch if later ones have nothing to decode."""
        return len(self._loader) if self._pool >= 1 else 6

    def mark(self) -> None:
        """Remember where the timed part began."""
        self._before = self._loader.report()

    def figures(self) -> dict[str, Any]:
        """Return how often frames were decoded, how much the pool held, and how well the order mixes."""
        after, samples = self._loader.report(), self._loader.order.sources[0].samples
        return {
            "frames_decoded": after.frames_decoded - self._before.frames_decoded,
            "frames_used": after.frames_used - self._before.frames_used,
            "epochs": (after.samples - self._before.samples) / len(samples),
            "pool_peak_mb": after.cache_peak_bytes / 1e6,
            "memory_mb": self._memory(self._recording) / 1e6,
            "decoded_mb": self._recording.decoded_bytes / 1e6,
            "stages_us": {
                late.name: (late.busy_s - early.busy_s)
                * 1e6
                / (after.samples - self._before.samples)
                for early, late in zip(self._before.stages, after.stages, strict=True)
            },
            "vif": self._vif(),
        }

    def _vif(self) -> float:
        """Compare the episodes of an epoch's batches with independent draws (docs/measurements/order.md)."""
        order = self._loader.order
        counts = np.asarray(order.sources[0].samples.counts, np.float64)
        episode_of = np.repeat(np.arange(len(counts)), counts.astype(int))
        share = counts / counts.sum()
        apart = []
        for step in order.steps(0):
            episodes = episode_of[order.batch(step)["sample"]]
            seen = np.bincount(episodes, minlength=len(counts)) / order.batch_size
            apart.append(float(((seen - share) ** 2).sum()))
        return float(np.mean(apart) / ((share * (1 - share)).sum() / order.batch_size))


def _request(kinograph: Any, recording: Recording, workload: Workload) -> dict[str, Any]:  # noqa: ANN401
    keys = recording.cameras + recording.vector_keys
    if workload.kind == "episode":
        return {key: kinograph.Window(whole=True) for key in keys}
    if workload.kind == "window":
        return {key: range(workload.length) for key in keys}
    request: dict[str, Any] = {
        camera: range(1 - workload.frames, 1) for camera in recording.cameras
    }
    request |= {key: kinograph.Window(steps=[0], single=True) for key in recording.vectors}
    return request | {"actions": range(workload.actions)}
