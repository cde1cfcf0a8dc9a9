"""Behavioural cloning from vectors: a perceptron from one observation to the next actions, trained on one thread.

    observation [D] ─ standardised ─ 64 ─ 64 ─ [H × A] ─ a chunk of H actions, of which the first few are executed

Initial weights and batches depend on the seed alone. The policy that is returned is plain NumPy: a forward pass of torch costs
more than a step of the simulator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from arms import to_grid
from torch import nn

Floats = npt.NDArray[np.float64]
HIDDEN = 64
RATE, DECAY = 2e-3, 1e-4
BATCH_SIZE, STEPS = 256, 1500
#: Actions that are predicted together, and how many of them are executed.
CHUNK, EXECUTED = 8, 4


@dataclasses.dataclass(frozen=True)
class Samples:
    """Observations [N, D], the action chunks that follow them [N, H, A]."""

    seen: Floats
    chunks: Floats


def to_samples(episodes: Sequence[tuple[Floats, Floats]], keep_every: int = 1) -> Samples:
    """Cut episodes into samples; a chunk that goes past the end repeats the last action."""
    seen, chunks = [], []
    for observations, actions in episodes:
        at = np.arange(0, len(actions), keep_every)
        seen.append(observations[at])
        chunks.append(actions[np.minimum(at[:, None] + np.arange(CHUNK), len(actions) - 1)])
    return Samples(np.concatenate(seen), np.concatenate(chunks))


class Policy:
    """A trained perceptron in NumPy."""

    def __init__(self, layers: list[tuple[Floats, Floats]], shape: tuple[int, int]) -> None:
        #: Weights [inputs, outputs] and biases of each layer.
        self.layers = layers
        self._shape = shape

    def predict(self, seen: Floats) -> Floats:
        """Give the action chunks [N, H, A] for observations [N, D]."""
        values = seen
        for number, (weight, bias) in enumerate(self.layers):
            values = values @ weight + bias
            if number < len(self.layers) - 1:
                values = np.maximum(values, 0)
        return values.reshape(len(seen), *self._shape)


class Runner:
    """Executes the first actions of a chunk before it asks for the next one."""

    def __init__(self, policy: Policy, steps: Floats) -> None:
        self._policy = policy
        #: To which observations are rounded, per element; 0 for none.
        self._steps = steps
        self._left: list[Floats] = []

    def act(self, seen: Floats) -> Floats:
        """Give the next action."""
        if not self._left:
            chunk = self._policy.predict(to_grid(seen, self._steps)[None])[0]
            self._left = list(np.clip(chunk[:EXECUTED], -1, 1))
        return self._left.pop(0)


def train(samples: Samples, seed: int) -> Policy:
    """Train with a cosine rate on the mean absolute error."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    offset, scale = samples.seen.mean(0), samples.seen.std(0)
    # An element that is constant says nothing; its noise at deployment must not be amplified.
    scale = np.where(scale < 1e-3, 1.0, scale)
    seen = torch.tensor((samples.seen - offset) / scale, dtype=torch.float32)
    chunks = torch.tensor(samples.chunks.reshape(len(seen), -1), dtype=torch.float32)
    network = nn.Sequential(
        nn.Linear(seen.shape[1], HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, chunks.shape[1]),
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    random = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        at = torch.randint(len(seen), (BATCH_SIZE,), generator=random)
        loss = (network(seen[at]) - chunks[at]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    layers = [
        (layer.weight.detach().double().numpy().T, layer.bias.detach().double().numpy())
        for layer in network
        if isinstance(layer, nn.Linear)
    ]
    weight, bias = layers[0]
    layers[0] = (weight / scale[:, None], bias - (offset / scale) @ weight)
    return Policy(layers, samples.chunks.shape[1:])
