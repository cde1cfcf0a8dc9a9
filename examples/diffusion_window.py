"""The window of a diffusion policy, and a small denoiser: `python examples/diffusion_window.py target/demo/lift.kino`.

The policy sees two steps, predicts sixteen and does eight of them:

    step           -1   0   1   2   3   4   5   6   7   8 … 14
    observations    o   o
    predicted       a   a   a   a   a   a   a   a   a   a …  a
    done                *   *   *   *   *   *   *   *

A sample may go beyond the end of its demonstration by what is predicted and not done; anchors nearer to the end are left out, as the
authors' own sampler does it. The denoiser is given noisy actions and the observations, and learns what the actions were.
"""

import sys

import torch
from torch import nn

import kinograph.torch

STATE = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos", "obs/object")
SEEN, PREDICTED, DONE = 2, 16, 8
FIRST = 1 - SEEN
SAMPLE = {
    "windows": {name: range(FIRST, 1) for name in STATE}
    | {"actions": range(FIRST, FIRST + PREDICTED)},
    "anchor": "actions",
    "skip_last": DONE - 1,
    "masks": "off",
}
NOISE_STEPS = 20
EPOCHS = 61


class Denoiser(nn.Module):
    """Noisy actions, how noisy they are and what was seen go in; clean actions come out."""

    def __init__(self, ds: kinograph.Dataset) -> None:
        super().__init__()
        stats = [ds.stats[name] for name in STATE]
        self.register_buffer("mean", torch.cat([torch.tensor(one.mean) for one in stats]).float())
        self.register_buffer("std", torch.cat([torch.tensor(one.std) for one in stats]).float())
        kept = torch.cumprod(1 - torch.linspace(1e-3, 0.35, NOISE_STEPS), 0)
        self.register_buffer("kept", kept)
        inputs = PREDICTED * 7 + SEEN * len(self.mean) + NOISE_STEPS
        layers = [nn.Linear(inputs, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(256, PREDICTED * 7))

    def forward(self, noisy: torch.Tensor, seen: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Guess the actions behind the noise."""
        level = nn.functional.one_hot(step, NOISE_STEPS)
        inputs = torch.cat([noisy.flatten(1), seen.flatten(1), level], dim=1)
        return self.layers(inputs).view_as(noisy)

    def see(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Give the observations, normalised."""
        state = torch.cat([batch[name].float() for name in STATE], dim=-1)
        return (state - self.mean) / (self.std + 1e-3)

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Give the mean squared error of actions that were guessed from noisy ones."""
        actions = batch["actions"].float()
        step = torch.randint(NOISE_STEPS, (len(actions),))
        kept = self.kept[step, None, None]
        noisy = kept.sqrt() * actions + (1 - kept).sqrt() * torch.randn_like(actions)
        return (self(noisy, self.see(batch), step) - actions).square().mean()

    @torch.no_grad()
    def act(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Make actions out of noise (DDIM), and give those that are done."""
        seen, actions = self.see(batch), torch.randn(batch["actions"].shape)
        for step in reversed(range(NOISE_STEPS)):
            clean = self(actions, seen, torch.full((len(actions),), step)).clamp(-1, 1)
            kept, before = self.kept[step], self.kept[step - 1] if step else torch.tensor(1.0)
            noise = (actions - kept.sqrt() * clean) / (1 - kept).sqrt()
            actions = before.sqrt() * clean + (1 - before).sqrt() * noise
        return actions[:, -FIRST : DONE - FIRST]


def error_of(denoiser: Denoiser, batch: dict[str, torch.Tensor]) -> float:
    """Give the mean squared error of the actions that are done, as a part of what it is if nothing is done."""
    wanted = batch["actions"][:, -FIRST : DONE - FIRST].float()
    return ((denoiser.act(batch) - wanted).square().mean() / wanted.square().mean()).item()


def main(path: str) -> None:
    """Train, and compare what the policy would do before and after."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    ds = kinograph.open(path)
    denoiser = Denoiser(ds)
    adam = torch.optim.Adam(denoiser.parameters(), lr=2e-3)
    with kinograph.torch.Loader(ds, **SAMPLE, batch_size=16, seed=7) as loader:
        kept = len(loader.order.sources[0].windows)
        print(f"{kept} samples: {SEEN} steps seen, {PREDICTED} predicted, {DONE} done")
        before = error_of(denoiser, next(iter(loader)))
        for epoch in range(EPOCHS):
            losses = []
            for batch in loader:
                loss = denoiser.loss(batch)
                adam.zero_grad()
                loss.backward()
                adam.step()
                losses.append(loss.item())
            if epoch % 12 == 0:
                print(f"epoch {epoch + 1:2}   loss {sum(losses) / len(losses):.4f}")
        print(f"error of what is done: {before:.3f} before, {error_of(denoiser, batch):.3f} after")
        print(f"compute ratio {loader.report().compute_ratio:.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "target/demo/lift.kino")
