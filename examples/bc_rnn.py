"""Behaviour cloning with a recurrent policy: `python examples/bc_rnn.py target/demo/lift.kino`.

A small BC-RNN as in robomimic: a sample is ten steps, the policy sees the wrist camera and the robot's state step by step and
predicts the action of each. The loss is also evaluated on the validation split of the same dataset.

    windows     obs, obs, … obs     seq_length=10, as in robomimic; past the end of a demonstration the last step is repeated,
                act, act, … act     and `pad_mask` says where
"""

import sys

import torch
from torch import nn

import kinograph.torch

CAMERA = "obs/robot0_eye_in_hand_image"
STATE = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos", "obs/object")
SAMPLE = {
    "seq_length": 10,
    "keys": ["actions", CAMERA, *STATE],
    "next_obs": False,
    "masks": "pad_mask",
}
LOADING = {
    "batch_size": 16,
    "images": kinograph.Images(layout="chw", dtype="float32"),
    "dtype": "float32",
}
EPOCHS = 6


class Policy(nn.Module):
    """A small CNN for the camera, a GRU over time, an action for each step."""

    def __init__(self, ds: kinograph.Dataset) -> None:
        super().__init__()
        self.camera = nn.Sequential(
            nn.AvgPool2d(6), nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        stats = [ds.stats[name] for name in STATE]
        self.register_buffer("mean", torch.cat([torch.tensor(one.mean) for one in stats]).float())
        self.register_buffer("std", torch.cat([torch.tensor(one.std) for one in stats]).float())
        self.memory = nn.GRU(8 * 6 * 6 + len(self.mean), 64, batch_first=True)
        self.action = nn.Linear(64, 7)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch: the mean squared error of all actions that are not padding."""
        samples, steps = batch["actions"].shape[:2]
        images = batch[CAMERA].flatten(0, 1) - 0.5
        seen = self.camera(images).view(samples, steps, -1)
        state = torch.cat([batch[name] for name in STATE], dim=-1)
        state = (state - self.mean) / (self.std + 1e-3)
        found = self.action(self.memory(torch.cat([seen, state], dim=-1))[0])
        error = (found - batch["actions"]).square().mean(-1, keepdim=True)
        return error[batch["pad_mask"]].mean()


def evaluate(policy: Policy, loader: kinograph.torch.Loader) -> float:
    """Return the mean loss over an epoch: every sample once, in the same order each time."""
    with torch.no_grad():
        losses = [policy(batch).item() for batch in loader]
    return sum(losses) / len(losses)


def main(path: str) -> None:
    """Train, and print both losses."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    ds = kinograph.open(path)
    policy = Policy(ds)
    adam = torch.optim.Adam(policy.parameters(), lr=3e-3)
    train = kinograph.torch.Loader(ds.samples(**SAMPLE, split="train"), seed=7, **LOADING)
    valid = kinograph.torch.Loader(ds.samples(**SAMPLE, split="valid"), shuffle=False, **LOADING)
    with train, valid:
        print(f"before    valid loss {evaluate(policy, valid):.4f}")
        for epoch in range(EPOCHS):
            losses = []
            for batch in train:
                loss = policy(batch)
                adam.zero_grad()
                loss.backward()
                adam.step()
                losses.append(loss.item())
            mean = sum(losses) / len(losses)
            print(f"epoch {epoch + 1}   loss {mean:.4f}, valid loss {evaluate(policy, valid):.4f}")
        print(f"compute ratio {train.report().compute_ratio:.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "target/demo/lift.kino")
