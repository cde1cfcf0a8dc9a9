"""What a trained policy is worth: rollouts, and the cheap measures that might predict them.

Every policy meets the same environment seeds with the same sampling noise, so that runs can be compared seed by seed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from policy import SIZE, Policy, crop, to_pixels
from pusht import CROP, EXECUTED, HORIZON, SIDE, Floats, Index, normalize
from ridge import unexplained
from rollouts import Array, Pool
from torch import Tensor
from trainer import Bank

MIDDLE = (SIDE - CROP) // 2
TURNS = 40


@dataclasses.dataclass(frozen=True)
class Mode:
    """A way to test: the round trip of live images, and how many environment seeds."""

    name: str
    live: str
    seeds: int


@dataclasses.dataclass(frozen=True)
class Truth:
    """What the measures compare with."""

    positions: Tensor
    chunks: Tensor
    pose: Tensor
    #: Steps of a chunk at which the block moves.
    contact: Tensor
    inside: Tensor


class Evaluator:
    """Runs policies in the environments and on held-out episodes."""

    def __init__(self, bank: Bank, index: Index, truth: Truth, pool: Pool) -> None:
        self.bank, self.index, self.truth, self.pool = bank, index, truth, pool
        self.device, self.cuda = bank.device, bank.device.type == "cuda"
        self.policy = Policy().to(self.device).to(memory_format=torch.channels_last).eval()
        self.policy.requires_grad_(False)
        noise = torch.randn(1000, TURNS, SIZE, generator=torch.Generator().manual_seed(777))
        self.noise = noise.to(self.device)
        self.held_out = torch.from_numpy(index.held_out).to(self.device)
        self.training = torch.from_numpy(index.train).to(self.device)

    def load(self, weights: dict[str, Tensor]) -> None:
        """Take the weights of a policy."""
        self.policy.load_state_dict(weights)

    def _encode(self, images: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.cuda):
            return self.policy.encoder(images).float()

    @property
    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.cuda else torch.float32

    @torch.no_grad()
    def roll_out(self, modes: Sequence[Mode], first_seed: int) -> dict[str, tuple[Array, Array]]:
        """Roll out in all modes at once; gives success and largest coverage per environment seed."""
        jobs = [(first_seed + seed, mode.live) for mode in modes for seed in range(mode.seeds)]
        numbers = np.concatenate([np.arange(mode.seeds) for mode in modes])

        def act(places: Array, images: Array, positions: Array, turn: int) -> Array:
            cut = images[:, :, MIDDLE : MIDDLE + CROP, MIDDLE : MIDDLE + CROP]
            frames = torch.from_numpy(np.ascontiguousarray(cut)).to(self.device)
            joined = frames.permute(0, 2, 3, 1, 4).reshape(len(places), CROP, CROP, 6)
            pixels = (joined.to(self._dtype) / 127.5 - 1).permute(0, 3, 1, 2)
            seen = normalize(positions.reshape(len(places), 4))
            where = self.policy.position(torch.from_numpy(seen).to(self.device))
            noise = self.noise[torch.from_numpy(numbers[places]).to(self.device), turn]
            chunk = self.policy.sample(torch.cat([self._encode(pixels), where], -1), noise)
            return to_pixels(chunk).reshape(-1, HORIZON, 2)[:, :EXECUTED].double().cpu().numpy()

        success, coverage = self.pool.run(jobs, act)
        ends = np.cumsum([mode.seeds for mode in modes])[:-1]
        parts = zip(modes, np.split(success, ends), np.split(coverage, ends), strict=True)
        return {mode.name: (won, covered) for mode, won, covered in parts}

    @torch.no_grad()
    def features(self, frames: Tensor, rows: Tensor) -> Tensor:
        """Encode steps, cropped in the middle."""
        found = []
        for part in rows.split(2048):
            corner = torch.full((len(part),), MIDDLE, device=self.device)
            images = crop(frames, self.bank.pairs[part], corner, corner, self._dtype)
            found.append(self._encode(images))
        return torch.cat(found)

    @torch.no_grad()
    def errors(self, frames: Tensor, draws: int = 16, samples: int = 4) -> dict[str, float]:
        """Measure a policy on held-out steps: flow loss, squared error of chunks in pixels, that in contact."""
        random = torch.Generator(device=self.device).manual_seed(99)
        rows, count = self.held_out, len(self.held_out)
        where = self.policy.position(self.truth.positions[rows])
        condition = torch.cat([self.features(frames, rows), where], -1)
        chunk = self.truth.chunks[rows]
        flow = 0.0
        for draw in range(draws):
            time = (torch.rand(count, generator=random, device=self.device) + draw) / draws
            noise = torch.randn(count, SIZE, generator=random, device=self.device)
            noisy = (1 - time[:, None]) * noise + time[:, None] * chunk
            velocity = self.policy.head(noisy, time, condition)
            flow += float(((velocity - (chunk - noise)) ** 2).mean()) / draws
        missed = torch.zeros(count, HORIZON, device=self.device)
        for _ in range(samples):
            noise = torch.randn(count, SIZE, generator=random, device=self.device)
            apart = to_pixels(self.policy.sample(condition, noise)) - to_pixels(chunk)
            missed += apart.reshape(count, HORIZON, 2).pow(2).sum(-1) / samples
        inside = self.truth.inside[rows][:, :EXECUTED]
        moving = self.truth.contact[rows][:, :EXECUTED] & inside
        missed = missed[:, :EXECUTED]
        return {
            "flow": flow,
            "chunk": float(missed[inside].mean()),
            "chunk_contact": float(missed[moving].mean()),
        }

    @torch.no_grad()
    def measures(self, arm: str) -> dict[str, float]:
        """Collect all cheap measures of a policy that was trained on an arm: on raw frames, and on the arm's."""
        raw, own = self.bank.of("raw"), self.bank.of(arm)
        errors = self.errors(raw)
        found = {f"{name}_raw": value for name, value in errors.items()}
        # The same frames give the same errors: nothing is drawn anew.
        errors = errors if arm == "raw" else self.errors(own)
        found |= {f"{name}_own": value for name, value in errors.items()}
        fitted = self.features(own, self.training).double()
        tests = {"raw": raw, "own": own}
        groups = torch.from_numpy(self.index.episode).to(self.device)[self.training]
        left = unexplained(
            fitted,
            self.truth.pose[self.training],
            groups,
            {name: self.features(frames, self.held_out).double() for name, frames in tests.items()},
            self.truth.pose[self.held_out],
        )
        return found | {f"pose_{name}": value for name, value in left.items()}


def pose_of(state: Floats) -> Tensor:
    """Give what a pose probe is to find: the block's place, and sine and cosine of its angle."""
    values = torch.from_numpy(state).double()
    angle = values[:, 4:]
    return torch.cat([values[:, 2:4] / 256 - 1, angle.sin(), angle.cos()], -1)
