"""The policy of the study: ResNet-18 on two frames, and a flow-matching head over chunks of actions.

    two images ─ crop ─ ResNet-18 with GroupNorm ─┐
                                                  ├─ condition ─ head(noisy chunk, time) ─ velocity
    agent positions of both steps ─ MLP ──────────┘

Training minimises the squared error of the velocity between noise and chunk at a random time; sampling integrates it in
ten Euler steps.
"""

from __future__ import annotations

import math

import torch
from pusht import CROP, HORIZON
from torch import Tensor, nn
from torch.nn import functional

SIZE = HORIZON * 2
WIDTH, FEATURES, HIDDEN, LAYERS, POSITION = 64, 512, 512, 4, 64
STEPS = 10


def normalized(layer: nn.GroupNorm, values: Tensor) -> Tensor:
    """Normalise in float32, whatever the activations are in."""
    return functional.group_norm(
        values.float(), layer.num_groups, layer.weight, layer.bias, layer.eps
    ).to(values.dtype)


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(outputs // 16, outputs) for _ in range(3))
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        """Apply the block."""
        found = functional.relu(normalized(self.norms[0], self.first(values)))
        found = normalized(self.norms[1], self.second(found))
        if self.shortcut is not None:
            values = normalized(self.norms[2], self.shortcut(values))
        return functional.relu(found + values)


class Encoder(nn.Module):
    """ResNet-18 on two frames stacked in channels, its last map flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(6, WIDTH, 7, 2, 3, bias=False)
        self.norm = nn.GroupNorm(WIDTH // 16, WIDTH)
        sizes = [WIDTH, WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH]
        blocks: list[nn.Module] = []
        for stage in range(4):
            stride = 1 if stage == 0 else 2
            blocks += [Block(sizes[stage], sizes[stage + 1], stride)]
            blocks += [Block(sizes[stage + 1], sizes[stage + 1], 1)]
        self.blocks = nn.Sequential(*blocks)
        self.out = nn.Linear(9 * sizes[-1], FEATURES)
        self.last = nn.LayerNorm(FEATURES)

    def forward(self, images: Tensor) -> Tensor:
        """Turn images of 6 × 84 × 84 into features."""
        found = functional.relu(normalized(self.norm, self.stem(images)))
        found = functional.max_pool2d(found, 3, 2, 1)
        return self.last(self.out(self.blocks(found).flatten(1)))


class Head(nn.Module):
    """The velocity of a noisy chunk at a time, modulated by the condition."""

    def __init__(self, condition: int) -> None:
        super().__init__()
        self.into = nn.Linear(SIZE, HIDDEN)
        self.condition = nn.Sequential(
            nn.Linear(condition + 64, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU()
        )
        self.scales = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN) for _ in range(LAYERS))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(HIDDEN, 2 * HIDDEN), nn.SiLU(), nn.Linear(2 * HIDDEN, HIDDEN))
            for _ in range(LAYERS)
        )
        self.final = nn.Linear(HIDDEN, 2 * HIDDEN)
        self.out = nn.Linear(HIDDEN, SIZE)
        for layer in (*self.scales, self.final, self.out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.register_buffer("rates", torch.logspace(0, 2, 32))

    def forward(self, noisy: Tensor, time: Tensor, condition: Tensor) -> Tensor:
        """Give the velocity."""
        angles = time[:, None] * self.rates
        condition = self.condition(torch.cat([condition, angles.sin(), angles.cos()], -1))
        hidden = self.into(noisy)
        for scale, layer in zip(self.scales, self.layers, strict=True):
            shift, factor, gate = scale(condition).chunk(3, -1)
            plain = functional.layer_norm(hidden, (HIDDEN,))
            hidden = hidden + gate * layer(plain * (1 + factor) + shift)
        shift, factor = self.final(condition).chunk(2, -1)
        return self.out(functional.layer_norm(hidden, (HIDDEN,)) * (1 + factor) + shift)


class Policy(nn.Module):
    """Encoder and head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.position = nn.Sequential(
            nn.Linear(4, POSITION), nn.SiLU(), nn.Linear(POSITION, POSITION)
        )
        self.head = Head(FEATURES + POSITION)

    def condition(self, images: Tensor, positions: Tensor) -> Tensor:
        """Encode what the policy sees."""
        return torch.cat([self.encoder(images), self.position(positions)], -1)

    def loss(
        self, images: Tensor, positions: Tensor, chunk: Tensor, noise: Tensor, time: Tensor
    ) -> Tensor:
        """Give the flow-matching loss; `noise` and `time` have several draws per sample."""
        batch, draws, size = noise.shape
        condition = self.condition(images, positions)[:, None].expand(batch, draws, -1)
        target = chunk[:, None]
        noisy = (1 - time[..., None]) * noise + time[..., None] * target
        velocity = self.head(
            noisy.reshape(-1, size), time.reshape(-1), condition.reshape(batch * draws, -1)
        )
        return ((velocity.float().reshape(noise.shape) - (target - noise)) ** 2).mean()

    def sample(self, condition: Tensor, noise: Tensor) -> Tensor:
        """Integrate from noise to a chunk."""
        found = noise
        for step in range(STEPS):
            time = torch.full((len(found),), step / STEPS, device=found.device, dtype=found.dtype)
            found = found + self.head(found, time, condition).to(found.dtype) / STEPS
        return found


def crop(frames: Tensor, rows: Tensor, top: Tensor, left: Tensor, dtype: torch.dtype) -> Tensor:
    """Cut crops out of pairs of frames: N × 96 × 96 × 3 bytes to B × 6 × 84 × 84 from -1 to 1, channels last."""
    places = torch.arange(CROP, device=frames.device)
    down = (top[:, None] + places)[:, None, :, None]
    across = (left[:, None] + places)[:, None, None, :]
    found = frames[rows[:, :, None, None], down, across]
    joined = found.permute(0, 2, 3, 1, 4).reshape(len(rows), CROP, CROP, 6)
    return (joined.to(dtype) / 127.5 - 1).permute(0, 3, 1, 2)


def to_pixels(values: Tensor) -> Tensor:
    """Map -1…1 back to positions."""
    return (values + 1) * 256


def cosine(step: int, steps: int, peak: float, warm: int = 300) -> float:
    """Give the learning rate of a step."""
    return peak * min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * step / steps))
