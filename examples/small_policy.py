"""The policy of the torch examples: wrist camera and robot state in, the next ten actions out."""

import torch
from torch import nn

CAMERA = "obs/robot0_eye_in_hand_image"
STATE = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos", "obs/object")
STEPS = 10
WINDOWS = {name: [0] for name in (CAMERA, *STATE)} | {"actions": range(STEPS)}


class Policy(nn.Module):
    """A few layers; small, so that it trains anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.camera = nn.Sequential(
            nn.AvgPool2d(6), nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        self.actions = nn.Sequential(nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, STEPS * 7))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch: the mean squared error of all actions that are not padding."""
        images = batch[CAMERA][:, 0].movedim(-1, 1).float() / 255 - 0.5
        state = torch.cat([batch[name][:, 0] for name in STATE], dim=1)
        found = self.actions(torch.cat([self.camera(images), state], dim=1))
        wanted = batch["actions"]
        error = (found.view_as(wanted) - wanted).square().mean(-1)
        return error[~batch["actions_is_pad"]].mean()


def make_policy() -> Policy:
    """Create the same policy every time and in every process."""
    torch.manual_seed(7)
    policy = Policy()
    sizes = {"obs/robot0_eef_pos": 3, "obs/robot0_eef_quat": 4, "obs/object": 10}
    batch = {name: torch.zeros(1, 1, sizes.get(name, 2)) for name in STATE}
    batch[CAMERA] = torch.zeros(1, 1, 84, 84, 3, dtype=torch.uint8)
    batch["actions"] = torch.zeros(1, STEPS, 7)
    batch["actions_is_pad"] = torch.zeros(1, STEPS, dtype=torch.bool)
    policy(batch)  # initialises the lazy layer
    return policy
