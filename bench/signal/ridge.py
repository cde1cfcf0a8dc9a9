"""How much of the targets linear regression on features leaves unexplained on held-out episodes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

PENALTIES = [10.0**power for power in range(-6, 1)]


def fit(inputs: Tensor, targets: Tensor, penalty: float) -> tuple[Tensor, Tensor, Tensor]:
    """Solve ridge regression; the penalty is relative to the mean variance of the inputs."""
    center, level = inputs.mean(0), targets.mean(0)
    apart = inputs - center
    square = apart.T @ apart
    square.diagonal().add_(penalty * square.diagonal().mean())
    solved = torch.cholesky_solve(apart.T @ (targets - level), torch.linalg.cholesky(square))
    return center, level, solved


def predict(fitted: tuple[Tensor, Tensor, Tensor], inputs: Tensor) -> Tensor:
    """Apply what was fitted."""
    center, level, solved = fitted
    return (inputs - center) @ solved + level


def unexplained(
    inputs: Tensor, targets: Tensor, groups: Tensor, tests: Mapping[str, Tensor], truth: Tensor
) -> dict[str, float]:
    """Give 1 − R² on each test; the penalty is chosen on every fifth group of the training data."""
    inner = groups % 5 == 0
    losses = {}
    for penalty in PENALTIES:
        found = predict(fit(inputs[~inner], targets[~inner], penalty), inputs[inner])
        losses[penalty] = float((found - targets[inner]).pow(2).sum())
    fitted = fit(inputs, targets, min(losses, key=losses.__getitem__))
    spread = (truth - truth.mean(0)).pow(2).sum()
    return {
        name: float((predict(fitted, features) - truth).pow(2).sum() / spread)
        for name, features in tests.items()
    }
