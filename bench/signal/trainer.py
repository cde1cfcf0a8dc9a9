"""Training: one captured CUDA graph per trainer, and as many trainers at a time as the GPU has room for.

All frames of all arms lie on the GPU once (`Bank`); an arm is an offset into them. A run's initial weights, order, crops
and noise depend on its seed, never on its arm.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from policy import SIZE, Policy, cosine, crop
from pusht import CROP, SIDE, Bytes, Floats, Index, Whole
from torch import Tensor

_DRAWING = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is the same in every run."""

    steps: int = 7000
    batch: int = 256
    draws: int = 8
    rate: float = 1e-3
    decay: float = 1e-4
    average: float = 0.999


class Bank:
    """The frames of every arm, one after the other, on the device."""

    def __init__(self, arms: Mapping[str, Bytes], index: Index, device: torch.device) -> None:
        self.device = device
        self.frames = torch.cat([torch.from_numpy(frames).to(device) for frames in arms.values()])
        self.steps = len(index.before)
        self.offsets = {arm: place * self.steps for place, arm in enumerate(arms)}
        pairs = np.stack([index.before, np.arange(self.steps)], 1)
        self.pairs = torch.from_numpy(pairs).to(device)

    def of(self, arm: str) -> Tensor:
        """Give the frames of an arm."""
        first = self.offsets[arm]
        return self.frames[first : first + self.steps]


@dataclasses.dataclass(frozen=True)
class Run:
    """One policy to be trained."""

    arm: str
    seed: int
    #: Batches of steps, as the loader would give them.
    order: Whole
    positions: Floats
    chunks: Floats
    #: Arms that frames are drawn from, and how likely each is: more than one for codec augmentation.
    mixture: Mapping[str, float]


class Trainer:
    """A policy, its moving average, and a step that is replayed."""

    def __init__(self, bank: Bank, settings: Settings) -> None:
        self.bank, self.settings = bank, settings
        self.cuda = bank.device.type == "cuda"
        self.stream = torch.cuda.Stream() if self.cuda else None
        self.policy, self.average = (self.fresh(0).to(bank.device) for _ in range(2))
        for policy in (self.policy, self.average):
            policy.to(memory_format=torch.channels_last)
        self.weights = list(self.policy.parameters())
        self.averages = list(self.average.parameters())
        self.average.requires_grad_(False)
        self._allocate()
        options = {"fused": True, "capturable": True} if self.cuda else {}
        self.optimizer = torch.optim.AdamW(
            self.weights,
            lr=self.rate if self.cuda else 1e-3,
            weight_decay=settings.decay,
            betas=(0.9, 0.99),
            **options,
        )
        self.graph = self._capture() if self.cuda else None

    @staticmethod
    def fresh(seed: int) -> Policy:
        """Make a policy with the weights of a seed."""
        # All trainers draw from one generator.
        with _DRAWING:
            torch.manual_seed(seed)
            return Policy()

    def _allocate(self) -> None:
        """Make the tensors that a replayed step reads."""
        device, size = self.bank.device, self.settings.batch
        self.rows, self.top, self.left = (
            torch.zeros(size, dtype=torch.long, device=device) for _ in range(3)
        )
        self.shift = torch.zeros(size, dtype=torch.long, device=device)
        self.noise = torch.zeros(size, self.settings.draws, SIZE, device=device)
        self.time = torch.zeros(size, self.settings.draws, device=device)
        self.rate, self.keep, self.loss = (torch.zeros((), device=device) for _ in range(3))
        self.positions = torch.zeros(self.bank.steps, 4, device=device)
        self.chunks = torch.zeros(self.bank.steps, SIZE, device=device)

    def _step(self) -> None:
        """Take one step: loss, gradients, weights, average."""
        dtype = torch.bfloat16 if self.cuda else torch.float32
        pairs = self.bank.pairs[self.rows] + self.shift[:, None]
        images = crop(self.bank.frames, pairs, self.top, self.left, dtype)
        inputs = (self.positions[self.rows], self.chunks[self.rows], self.noise, self.time)
        with torch.autocast(self.bank.device.type, torch.bfloat16, enabled=self.cuda):
            loss = (_compiled if self.cuda else Policy.loss)(self.policy, images, *inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_mul_(self.averages, self.keep)
            torch._foreach_add_(self.averages, torch._foreach_mul(self.weights, 1 - self.keep))
            self.loss.mul_(0.99).add_(0.01 * loss.detach())

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Record a step."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(4):
                self._step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self._step()
        torch.cuda.synchronize()
        return graph

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        with torch.cuda.stream(self.stream):
            yield
        if self.stream:
            self.stream.synchronize()

    @torch.no_grad()
    def _reset(self, run: Run) -> None:
        self.positions.copy_(torch.from_numpy(run.positions))
        self.chunks.copy_(torch.from_numpy(run.chunks))
        fresh = self.fresh(run.seed).parameters()
        for weight, average, value in zip(self.weights, self.averages, fresh, strict=True):
            weight.copy_(value)
            average.copy_(value)
        for state in self.optimizer.state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()
        self.loss.zero_()

    def train(self, run: Run) -> tuple[dict[str, Tensor], list[float]]:
        """Train a policy; gives the averaged weights and the loss every 500 steps."""
        with self._on_stream():
            self._reset(run)
            curve = self._loop(run)
            weights = self.average.state_dict().items()
            return {name: value.detach().clone() for name, value in weights}, curve

    def _loop(self, run: Run) -> list[float]:
        device, steps = self.bank.device, self.settings.steps
        draw = torch.Generator(device=device).manual_seed(1000 + run.seed)
        order = torch.from_numpy(run.order[:steps]).to(device)
        corners = torch.randint(
            0, SIDE - CROP + 1, (2, *order.shape), generator=draw, device=device
        )
        # A generator of its own: mixing arms must not change the crops and the noise.
        mixing = torch.Generator(device=device).manual_seed(2000 + run.seed)
        offsets = torch.tensor([self.bank.offsets[arm] for arm in run.mixture], device=device)
        chances = torch.tensor(list(run.mixture.values()), device=device)
        curve = []
        # Bounded run-ahead, so that the inference of rollouts is not queued behind training.
        marks = [torch.cuda.Event(blocking=True) for _ in range(4)] if self.cuda else []
        for step in range(steps):
            if marks and step >= len(marks):
                marks[step % len(marks)].synchronize()
            self.rows.copy_(order[step])
            self.top.copy_(corners[0, step])
            self.left.copy_(corners[1, step])
            chosen = torch.multinomial(chances, len(self.rows), replacement=True, generator=mixing)
            self.shift.copy_(offsets[chosen])
            self.noise.normal_(generator=draw)
            self.time.uniform_(generator=draw)
            self.keep.fill_(min(self.settings.average, (1 + step) / (10 + step)))
            rate = cosine(step, steps, self.settings.rate)
            if self.graph:
                self.rate.fill_(rate)
                self.graph.replay()
                marks[step % len(marks)].record()
            else:
                self.optimizer.param_groups[0]["lr"] = rate
                self._step()
            if step % 500 == 499 or step == steps - 1:
                curve.append(float(self.loss))
        return curve


_compiled = torch.compile(Policy.loss)
