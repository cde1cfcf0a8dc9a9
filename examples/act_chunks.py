"""Action chunks and their mask, as in ACT: `python examples/act_chunks.py target/aloha.kino`.

Two arms (ALOHA's layout, at 50 Hz) execute 25 steps at a time: the policy sees one image and the joints, and predicts half a second of
actions. Near the end of an episode a chunk reaches past it; `action_is_pad` says where, and those actions are masked out of the loss.

    t                     image, joints ──► transformer ──► t, t+1, … t+24
    end of the episode    a a a a a a │ x x x x     x: the last action repeated, masked

Make the dataset with `kinograph pack tests/data/aloha target/aloha.kino`.
"""

import sys

import torch
from torch import nn

import kinograph.torch

CAMERA, JOINTS, ACTION = "observations/images/top", "observations/qpos", "action"
CHUNK = 25
EPOCHS = 6
WINDOWS = {CAMERA: [0], JOINTS: [0], ACTION: range(CHUNK)}


class Policy(nn.Module):
    """Image patches and the joints are input tokens; each step of the chunk is a learned query."""

    def __init__(self, ds: kinograph.Dataset, width: int = 32) -> None:
        super().__init__()
        for name in (JOINTS, ACTION):
            stats = ds.stats[name]
            self.register_buffer(f"{name[:6]}_mean", torch.tensor(stats.mean).float())
            self.register_buffer(f"{name[:6]}_std", torch.tensor(stats.std).float() + 1e-2)
        self.patches = nn.Conv2d(3, width, 20, stride=20)
        self.joints = nn.Linear(14, width)
        self.steps = nn.Parameter(torch.randn(CHUNK, width) * 0.1)
        self.places = nn.Parameter(torch.randn(3 * 4 + 1, width) * 0.1)
        layer = nn.TransformerDecoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.action = nn.Linear(width, 14)

    def forward(self, images: torch.Tensor, joints: torch.Tensor) -> torch.Tensor:
        """Return the chunk of actions, normalised."""
        seen = self.patches(images - 0.5).flatten(2).movedim(1, 2)
        own = self.joints((joints - self.observ_mean) / self.observ_std)
        tokens = torch.cat([seen, own[:, None]], dim=1) + self.places
        queries = self.steps.expand(len(images), -1, -1)
        return self.action(self.decoder(queries, tokens))

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return ACT's loss: the mean absolute error, without padding."""
        wanted = (batch[ACTION] - self.action_mean) / self.action_std
        found = self(batch[CAMERA][:, 0], batch[JOINTS][:, 0])
        error = (found - wanted).abs().mean(-1)
        return error[~batch[f"{ACTION}_is_pad"]].mean()


def count_padding(batch: dict[str, torch.Tensor], policy: Policy) -> int:
    """Count the padded actions of a batch, and check that their values do not change the loss."""
    pad = batch[f"{ACTION}_is_pad"]
    changed = batch | {ACTION: torch.where(pad[..., None], 1e6, batch[ACTION])}
    with torch.no_grad():
        if policy.loss(batch) != policy.loss(changed):
            raise SystemExit("error: padded actions change the loss")
    return int(pad.sum())


def main(path: str) -> None:
    """Train, and print the losses."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    ds = kinograph.open(path)
    policy = Policy(ds)
    adam = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    with kinograph.torch.Loader(
        ds,
        windows=WINDOWS,
        anchor=ACTION,
        batch_size=24,
        seed=7,
        images=kinograph.Images(layout="chw", dtype="float32"),
        dtype="float32",
    ) as loader:
        for epoch in range(EPOCHS):
            losses, padded, actions = [], 0, 0
            for batch in loader:
                loss = policy.loss(batch)
                adam.zero_grad()
                loss.backward()
                adam.step()
                losses.append(loss.item())
                padded += count_padding(batch, policy)
                actions += batch[f"{ACTION}_is_pad"].numel()
            print(f"epoch {epoch + 1}   loss {sum(losses) / len(losses):.4f}")
        print(f"{padded} of {actions} actions of an epoch are padding and are masked")
        print(f"compute ratio {loader.report().compute_ratio:.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "target/aloha.kino")
