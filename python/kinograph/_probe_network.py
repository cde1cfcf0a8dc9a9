"""Features for the probe from a small network, trained on raw frames of episodes that are set aside; it needs torch.

    images ──▶ convolutions ──▶ means of a 6 × 6 grid ──▶ linear, ReLU ──▶ features ─┐
    vectors ─────────────────────────────────────────────────────────────────────────┴──▶ linear ──▶ targets

Only the features leave the network: the regression of the probe is fitted on them, on other episodes.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from typing import TypeAlias, TypedDict

import numpy as np
import torch
from torch import nn
from torch.nn import functional

_Shape: TypeAlias = tuple[int, int, int]
#: Packed images of a camera, the shape of one, and how many features it becomes.
_Frames: TypeAlias = tuple[bytearray, _Shape, int]

_BATCH = 64
#: Steps of a network: at least so many rounds over the frames, within these limits.
_EPOCHS, _LEAST_STEPS, _MOST_STEPS = 40, 300, 1500
#: Fewer are no training; then the time is exceeded.
_FEWEST_STEPS = 50
_TIMED_STEPS = 5
_GRID = 6
#: Images that pass through the network at once.
_ENCODED = 256


class _Camera(nn.Module):  # type: ignore[misc, unused-ignore]
    """Images of one camera as features: about 100,000 parameters."""

    def __init__(self, shape: tuple[int, int, int], width: int) -> None:
        super().__init__()
        longer = max(shape[:2])
        stride = 1 if longer < 24 else max(2, math.ceil(longer / 48))
        first = 2 * (stride // 2) + 3
        self.reach = longer // 32
        self.layers = nn.Sequential(
            nn.Conv2d(shape[2], 16, first, stride, first // 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 24, 3, 1, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(_GRID),
            nn.Flatten(),
            nn.Linear(24 * _GRID**2, width),
            nn.ReLU(),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Take images of uint8, channels last; while it is trained, they are shifted by up to 3 % at random."""
        scaled = images.permute(0, 3, 1, 2).float() / 127.5 - 1
        if self.training and self.reach:
            padded = functional.pad(scaled, (self.reach,) * 4, mode="replicate")
            top, left = (int(one) for one in torch.randint(2 * self.reach + 1, (2,)))
            scaled = padded[:, :, top : top + scaled.shape[2], left : left + scaled.shape[3]]
        found: torch.Tensor = self.layers(scaled)
        return found


class _Policy(nn.Module):  # type: ignore[misc, unused-ignore]
    """All cameras, and a linear prediction of the targets from their features and the vectors."""

    def __init__(
        self, cameras: Mapping[str, tuple[_Shape, int]], vectors: int, targets: int
    ) -> None:
        super().__init__()
        # A module's name must not have dots, and a stream's may.
        self.names = list(cameras)
        self.cameras = nn.ModuleList(_Camera(shape, width) for shape, width in cameras.values())
        features = sum(width for _, width in cameras.values())
        self.head = nn.Linear(features + vectors, targets)

    def forward(self, images: list[torch.Tensor], vectors: torch.Tensor) -> torch.Tensor:
        """Predict targets in standard deviations."""
        parts = [camera(one) for camera, one in zip(self.cameras, images, strict=True)]
        found: torch.Tensor = self.head(torch.cat([*parts, vectors], dim=1))
        return found


class _Lesson(TypedDict):
    """How much there is to learn from, by how many networks, and how long they may take."""

    rows: int
    sets: int
    seed: int
    seconds: float


class Network:
    """What the probe calls: :meth:`prepare`, :meth:`learn` for each set of features, then :meth:`encode`."""

    def __init__(self) -> None:
        self._policies: list[_Policy] = []

    def prepare(
        self, cameras: dict[str, _Frames], vectors: bytearray, targets: bytearray, how: _Lesson
    ) -> str:
        """Take frames, measure a few steps, and say how long training takes."""
        self._how = how
        images = [_to_tensor(frames, shape) for frames, shape, _ in cameras.values()]
        known, wanted = (_to_rows(values, how["rows"]) for values in (vectors, targets))
        self._data = images, known, wanted
        self._cameras = {name: (shape, width) for name, (_, shape, width) in cameras.items()}
        # The first step of a process sets up much that the others do not wait for.
        self._trained(steps=1)
        began = time.perf_counter()
        self._trained(steps=_TIMED_STEPS)
        step_s = (time.perf_counter() - began) / _TIMED_STEPS
        self._steps = _steps(how, step_s)
        return (
            f"training {how['sets']} networks on {how['rows']} frames, {self._steps} steps each: about "
            f"{how['sets'] * self._steps * step_s:.0f} s"
        )

    def learn(self) -> None:
        """Train one more network, from its own start, on the same frames."""
        self._policies.append(self._trained(self._steps).eval())
        if len(self._policies) == self._how["sets"]:
            del self._data

    def _trained(self, steps: int) -> _Policy:
        with _own_settings(), torch.enable_grad():
            torch.manual_seed((self._how["seed"] + 1_000_003 * len(self._policies)) % 2**63)
            _, known, wanted = self._data
            policy = _Policy(self._cameras, known.shape[1], wanted.shape[1])
            _train(policy, self._data, steps)
            return policy

    def encode(self, stream: str, frames: bytearray) -> bytes:
        """Give features of packed images as float32: of each image, those of the first network, then of the next."""
        images = _to_tensor(frames, self._cameras[stream][0])
        with _own_settings(), torch.no_grad():
            parts = []
            for policy in self._policies:
                camera = policy.cameras[policy.names.index(stream)]
                parts.append(torch.cat([camera(part) for part in images.split(_ENCODED)]))
            found: bytes = torch.cat(parts, dim=1).numpy().astype("<f4").tobytes()
            return found


@contextlib.contextmanager
def _own_settings() -> Iterator[None]:
    """Use the CPU and random numbers of its own, whatever the caller has set.

    One thread, so that sums do not depend on the number of cores; several wait for each other where cores are busy, and
    then training on small images took many times as long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            yield
    finally:
        torch.set_num_threads(threads)


def _to_tensor(frames: bytearray, shape: tuple[int, int, int]) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(frames, np.uint8).reshape(-1, *shape))


def _to_rows(values: bytearray, rows: int) -> torch.Tensor:
    found = np.frombuffer(values, "<f4").astype(np.float32)
    return torch.from_numpy(found.reshape(rows, len(found) // max(rows, 1)))


def _steps(how: _Lesson, step_s: float) -> int:
    """Give the steps that the frames need, or as many as there is time for."""
    wanted = _EPOCHS * math.ceil(how["rows"] / _BATCH)
    wanted = min(max(wanted, _LEAST_STEPS), _MOST_STEPS)
    there_is_time_for = int(how["seconds"] / (how["sets"] * step_s))
    return min(wanted, max(there_is_time_for, _FEWEST_STEPS))


def _train(
    policy: _Policy, data: tuple[list[torch.Tensor], torch.Tensor, torch.Tensor], steps: int
) -> None:
    """Minimise the squared error of the targets."""
    images, known, wanted = data
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps + 1)
    policy.train()
    for _ in range(steps):
        rows = torch.randint(len(wanted), (_BATCH,))
        predicted = policy([one[rows] for one in images], known[rows])
        loss = functional.mse_loss(predicted, wanted[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
