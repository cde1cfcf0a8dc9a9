"""Three policies of different sizes, following their papers in outline: what a training step costs a GPU.

bc          a small residual network per camera and an LSTM over ten steps           84 × 84, two cameras
act         ResNet-18 per camera, a transformer that predicts 100 actions at once    480 × 640, two cameras
diffusion   ResNet-18 per camera and step, a convolutional denoiser of 16 actions    224 × 224, two cameras, two steps

Images arrive as uint8 HWC, and become floats on the GPU.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]


def images(frames: Tensor) -> Tensor:
    """Convert uint8 HWC to float CHW, on the GPU."""
    return frames.movedim(-1, -3).to(torch.bfloat16) / 255 - 0.5


class Block(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(outside // 16, outside) for _ in range(2))
        self.around = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the convolutions to the input."""
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(inner)) + self.around(x))


class Residual(nn.Sequential):
    """ResNet-18's layers without its head, with group norms; ResNet-18 has `width` 64."""

    def __init__(self, width: int) -> None:
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1)]
        for number, (inside, outside) in enumerate(itertools.pairwise(sizes)):
            layers += [Block(inside, outside, 2 if number else 1), Block(outside, outside, 1)]
        super().__init__(*layers)


class Bc(nn.Module):
    """Behaviour cloning with memory, like robomimic's BC-RNN."""

    cameras = ("obs/agentview_image", "obs/robot0_eye_in_hand_image")

    def __init__(self) -> None:
        super().__init__()
        self.eyes = nn.ModuleList(Residual(32) for _ in self.cameras)
        self.memory = nn.LSTM(2 * 256 + 10, 1000, 2, batch_first=True)
        self.actions = nn.Linear(1000, 7)

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        samples, steps = batch["actions"].shape[:2]
        seen = [
            eye(images(batch[name]).flatten(0, 1)).mean((2, 3)).unflatten(0, (samples, steps))
            for eye, name in zip(self.eyes, self.cameras, strict=True)
        ]
        state = batch["obs/object"].to(torch.bfloat16)
        found, _ = self.memory(torch.cat([*seen, state], dim=-1))
        return functional.mse_loss(self.actions(found), batch["actions"].to(torch.bfloat16))


class Act(nn.Module):
    """Action chunks from a transformer over the features of both cameras, without the style variable."""

    cameras = ("observations/images/top", "observations/images/right_wrist")

    def __init__(self) -> None:
        super().__init__()
        self.eye = Residual(64)
        self.state = nn.Linear(14, 512)
        self.places = nn.Parameter(torch.zeros(2 * 15 * 20 + 1, 512))
        self.queries = nn.Parameter(torch.randn(100, 512) * 0.02)
        self.transformer = nn.Transformer(512, 8, 4, 7, 3200, batch_first=True)
        self.actions = nn.Linear(512, 14)

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        seen = [self.eye(images(batch[name]).flatten(0, 1)).flatten(2).mT for name in self.cameras]
        state = self.state(batch["observations/qpos"].to(torch.bfloat16))
        tokens = torch.cat([*seen, state], dim=1) + self.places
        found = self.transformer(tokens, self.queries.expand(len(tokens), -1, -1))
        return functional.l1_loss(self.actions(found), batch["actions"].to(torch.bfloat16))


class Film(nn.Module):
    """A convolution over time whose channels are scaled and shifted by the observation (FiLM)."""

    def __init__(self, inside: int, outside: int, seen: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inside, outside, 5, padding=2)
        self.norm = nn.GroupNorm(8, outside)
        self.film = nn.Linear(seen, 2 * outside)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Convolve, scale, shift."""
        scale, shift = self.film(seen)[..., None].chunk(2, dim=1)
        return functional.mish(self.norm(self.conv(x)) * (1 + scale) + shift)


class Diffusion(nn.Module):
    """A denoiser of action sequences, like diffusion policy's convolutional one."""

    cameras = Act.cameras

    def __init__(self) -> None:
        super().__init__()
        self.eyes = nn.ModuleList(Residual(64) for _ in self.cameras)
        seen = 2 * (2 * 512 + 14) + 128
        self.noise_level = nn.Embedding(100, 128)
        self.down = nn.ModuleList(
            Film(a, b, seen) for a, b in ((14, 256), (256, 512), (512, 1024), (1024, 1024))
        )
        self.up = nn.ModuleList(Film(a, b, seen) for a, b in ((2048, 512), (1024, 256), (512, 256)))
        self.actions = nn.Conv1d(256, 14, 1)

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        actions = batch["actions"].to(torch.bfloat16).mT
        samples = len(actions)
        seen = [
            eye(images(batch[name]).flatten(0, 1)).mean((2, 3)).reshape(samples, -1)
            for eye, name in zip(self.eyes, self.cameras, strict=True)
        ]
        level = torch.randint(0, 100, (samples,), device=actions.device)
        state = batch["observations/qpos"].to(torch.bfloat16).flatten(1)
        about = torch.cat([*seen, state, self.noise_level(level)], dim=1)
        noise = torch.randn_like(actions)
        share = (level / 100).to(torch.bfloat16)[:, None, None]
        x, kept = (1 - share) * actions + share * noise, []
        for layer in self.down:
            x = layer(x, about)
            kept.append(x)
        kept.pop()
        for layer in self.up:
            x = layer(torch.cat([x, kept.pop()], dim=1), about)
        return functional.mse_loss(self.actions(x), noise)
