"""Train a small policy from a packed recording: `python examples/train.py target/demo/lift.kino`.

Behaviour cloning in plain numpy: two cameras and the robot's state in, the next ten actions out, two layers.
It is small so that it runs everywhere. It shows the loop around a loader, and where its time goes.
"""

import sys

import numpy as np

import kinograph
import kinograph.numpy

CAMERAS = ("obs/agentview_image", "obs/robot0_eye_in_hand_image")
STATE = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos", "obs/object")
STEPS = 10
HIDDEN = 128


class Policy:
    """Two layers and Adam."""

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        shapes = [(inputs, HIDDEN), (HIDDEN,), (HIDDEN, outputs), (outputs,)]
        self.weights = [rng.normal(0, 1 / np.sqrt(shape[0]), shape) for shape in shapes]
        self.means = [np.zeros(shape) for shape in shapes]
        self.squares = [np.zeros(shape) for shape in shapes]
        self.steps = 0

    def train(self, inputs: np.ndarray, wanted: np.ndarray, counts: np.ndarray) -> float:
        """Take one gradient step where `counts` is 1; return the mean squared error."""
        first, first_bias, second, second_bias = self.weights
        hidden = np.tanh(inputs @ first + first_bias)
        error = (hidden @ second + second_bias - wanted) * counts
        slope = 2 * error / counts.sum()
        back = slope @ second.T * (1 - hidden**2)
        self.adam([inputs.T @ back, back.sum(0), hidden.T @ slope, slope.sum(0)])
        return float(np.square(error).sum() / counts.sum())

    def adam(self, slopes: list[np.ndarray], rate: float = 1e-3) -> None:
        """Update every weight by Adam's rule."""
        self.steps += 1
        for place, slope in enumerate(slopes):
            self.means[place] += 0.1 * (slope - self.means[place])
            self.squares[place] += 0.01 * (slope**2 - self.squares[place])
            step = self.means[place] / (1 - 0.9**self.steps)
            scale = np.sqrt(self.squares[place] / (1 - 0.99**self.steps)) + 1e-8
            self.weights[place] -= rate * step / scale


def to_inputs(batch: dict[str, np.ndarray], stats: dict) -> np.ndarray:
    """Flatten a batch: images as means of 12 × 12 pixels, vectors normalised."""
    parts = []
    for camera in CAMERAS:
        images = batch[camera][:, 0]
        count, height, width, channels = images.shape
        tiles = images.reshape(count, height // 12, 12, width // 12, 12, channels)
        parts.append(tiles.mean((2, 4)).reshape(count, -1) / 255 - 0.5)
    for name in STATE:
        parts.append((batch[name][:, 0] - stats[name].mean) / np.maximum(stats[name].std, 1e-3))
    return np.concatenate(parts, axis=1)


def train(path: str, *, epochs: int = 8, batch_size: int = 16) -> list[float]:
    """Train, print the losses and where the time went; return the mean loss of every epoch."""
    ds = kinograph.open(path)
    stats = ds.stats
    samples = ds.samples(
        {name: [0] for name in (*CAMERAS, *STATE)} | {"actions": range(STEPS)},
        anchor="actions",
    )
    losses: list[float] = []
    with kinograph.numpy.Loader(samples, batch_size=batch_size, seed=7) as loader:
        policy = None
        for epoch in range(epochs):
            sums = []
            for batch in loader:
                with loader.compute():
                    inputs = to_inputs(batch, stats)
                    wanted = batch["actions"].reshape(len(inputs), -1)
                    counts = np.repeat(~batch["actions_is_pad"], wanted.shape[1] // STEPS, axis=1)
                    if policy is None:
                        policy = Policy(inputs.shape[1], wanted.shape[1], np.random.default_rng(7))
                    sums.append(policy.train(inputs, wanted, counts))
            losses.append(float(np.mean(sums)))
            print(f"  epoch {epoch + 1}: loss {losses[-1]:.4f}")
        report = loader.report()
        print(f"\n{report}")
        loop = report.loop
        print(f"The policy computed for {loop.compute_s:.2f} s of {loop.elapsed_s:.2f} s.")
    return losses


if __name__ == "__main__":
    train(sys.argv[1] if len(sys.argv) > 1 else "target/demo/lift.kino")
