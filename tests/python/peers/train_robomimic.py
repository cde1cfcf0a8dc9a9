"""Train robomimic's own BC-RNN on Lift with its dataset and with ours, and compare the losses.

Run from the root of the repository, with the packages of record_robomimic.py and those that robomimic's training imports:

    /tmp/robomimic/bin/pip install torchvision==0.25.0 six imageio tensorboardX matplotlib scipy psutil \\
        huggingface_hub==0.23.4 transformers==4.41.2 diffusers==0.11.1
    /tmp/robomimic/bin/pip install .
    /tmp/robomimic/bin/python tests/python/peers/train_robomimic.py

It trains for eight steps with each, in two minutes on one core, and fails if a loss or a weight differs: a lossless
dataset gives the same batches, so the same seed gives the same policy.
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from robomimic.algo import algo_factory
from robomimic.config import config_factory
from robomimic.utils import dataset as their
from robomimic.utils import obs_utils, train_utils
from torch.utils.data import DataLoader

import kinograph
import kinograph.robomimic as our

RECORDING = Path(__file__).resolve().parents[3] / "tests/data/lift_3demos.hdf5"
LOW_DIM = ["robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object"]
CAMERA = "agentview_image"
STEPS = 10
# A small policy, so that it trains without a GPU.
CORE = {
    "feature_dimension": 16,
    "flatten": True,
    "backbone_class": "ResNet18Conv",
    "backbone_kwargs": {"pretrained": False, "input_coord_conv": False},
    "pool_class": "SpatialSoftmax",
    "pool_kwargs": {
        "num_kp": 8,
        "learnable_temperature": False,
        "temperature": 1.0,
        "noise_std": 0.0,
    },
}


def main() -> int:
    """Train with each dataset, with and without a cache."""
    torch.set_num_threads(1)
    config = make_config()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "lift.kino"
        kinograph.pack(RECORDING, packed)
        for cache_mode in (None, "low_dim"):
            theirs = train(config, their.SequenceDataset, RECORDING, cache_mode)
            ours = train(config, our.SequenceDataset, packed, cache_mode)
            print(f"cache {cache_mode}: losses {theirs[:-1]} and {ours[:-1]}")
            failed += theirs != ours
    print("NOT equal" if failed else "all equal")
    return failed


def make_config() -> object:
    """Configure BC-RNN with a GMM head, on a camera and low-dimensional observations."""
    config = config_factory("bc")
    with config.unlocked():
        config.train.cuda = False
        config.observation.modalities.obs.low_dim = LOW_DIM
        config.observation.modalities.obs.rgb = [CAMERA]
        config.observation.encoder.rgb.core_class = "VisualCore"
        for name, value in CORE.items():
            config.observation.encoder.rgb.core_kwargs[name] = value
        config.algo.rnn.enabled = True
        config.algo.rnn.horizon = STEPS
        config.algo.rnn.hidden_dim = 64
        config.algo.actor_layer_dims = ()
        config.algo.gmm.enabled = True
    with quiet():
        obs_utils.initialize_obs_utils_with_config(config)
    return config


def train(config: object, kind: type, path: Path, cache_mode: str | None) -> list[float]:
    """Train with one dataset class; return the losses, and the sum of all weights last."""
    np.random.seed(1)
    torch.manual_seed(1)
    with quiet():
        dataset = kind(
            hdf5_path=str(path),
            obs_keys=[*LOW_DIM, CAMERA],
            dataset_keys=("actions", "rewards", "dones"),
            seq_length=STEPS,
            hdf5_cache_mode=cache_mode,
            hdf5_use_swmr=False,
            load_next_obs=False,
        )
        shapes = {key: list(dataset[0]["obs"][key].shape[1:]) for key in LOW_DIM}
        shapes[CAMERA] = [3, 84, 84]
        model = algo_factory("bc", config, shapes, 7, torch.device("cpu"))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)
    losses = []
    for epoch in range(2):
        with quiet():
            log = train_utils.run_epoch(model, loader, epoch, num_steps=4)
        losses.append(log["Loss"])
    return [*losses, sum(float(w.detach().double().abs().sum()) for w in model.nets.parameters())]


@contextlib.contextmanager
def quiet() -> object:
    """Suppress robomimic's output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


if __name__ == "__main__":
    sys.exit(main())
