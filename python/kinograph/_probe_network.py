"""Features for the probe from a small network, trained on raw frames of episodes that are set aside; it needs torch.

    images ──▶ convolutions ──▶ means of a 6 × 6 grid ──▶ linear, ReLU ──▶ features ─┐
    vectors ─────────────────────────────────────────────────────────────────────────┴──▶ linear ──▶ targets

Only the features leave the network: the regression of the probe is fitted on them, on other episodes.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from kinograph._core import _Lesson

#: Packed images of a camera, the shape of one, and how many features it becomes.
_Frames: TypeAlias = tuple[bytearray, tuple[int, int, int], int]

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

    def __init__(self, cameras: Mapping[str, _Frames], vectors: int, targets: int) -> None:
        super().__init__()
        # A module's name must not have dots, and a stream's may.
        self.names = list(cameras)
        self.cameras = nn.ModuleList(_Camera(shape, width) for _, shape, width in cameras.values())
        features = sum(width for _, _, width in cameras.values())
        self.head = nn.Linear(features + vectors, targets)

    def forward(self, images: list[torch.Tensor], vectors: torch.Tensor) -> torch.Tensor:
        """Predict targets in standard deviations."""
        parts = [camera(one) for camera, one in zip(self.cameras, images, strict=True)]
        found: torch.Tensor = self.head(torch.cat([*parts, vectors], dim=1))
        return found


class Network:
    """What the probe calls: :meth:`learn` once, then :meth:`encode` for raw and compressed images."""

    def __init__(self, progress: Callable[[str], object] | None) -> None:
        self._say = progress or (lambda _: None)
        self._policies: list[_Policy] = []
        self._shapes: dict[str, tuple[int, int, int]] = {}

    def learn(
        self,
        cameras: dict[str, _Frames],
        vectors: bytearray,
        targets: bytearray,
        how: _Lesson,
    ) -> None:
        """Train one network per set of features, each from its own start, on the same frames."""
        self._shapes = {stream: shape for stream, (_, shape, _) in cameras.items()}
        with _own_settings(), torch.enable_grad():
            images = [_to_tensor(frames, shape) for frames, shape, _ in cameras.values()]
            known, wanted = (_to_rows(values, how["rows"]) for values in (vectors, targets))

            def start(number: int) -> _Policy:
                torch.manual_seed((how["seed"] + 1_000_003 * number) % 2**63)
                return _Policy(cameras, known.shape[1], wanted.shape[1])

            def train(policy: _Policy, steps: int) -> None:
                _train(policy, (images, known, wanted), steps)

            # The first step of a process sets up much that the others do not wait for.
            train(start(0), 1)
            began = time.perf_counter()
            train(start(0), _TIMED_STEPS)
            step_s = (time.perf_counter() - began) / _TIMED_STEPS
            steps = _steps(how, step_s)
            self._say(
                f"training {how['sets']} networks on {how['rows']} frames, {steps} steps each: about "
                f"{how['sets'] * steps * step_s:.0f} s"
            )
            for number in range(how["sets"]):
                policy = start(number)
                train(policy, steps)
                self._policies.append(policy.eval())

    def encode(self, stream: str, frames: bytearray) -> bytes:
        """Give features of packed images as float32: of each image, those of the first network, then of the next."""
        images = _to_tensor(frames, self._shapes[stream])
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
