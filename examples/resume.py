"""Resume after a kill, with identical losses: `python examples/resume.py target/demo/lift.kino`.

A process trains and is killed in the middle of an epoch; another one continues from the last checkpoint. Together their losses
are those of a process that was never stopped, bit for bit: the loader's state names the next batch.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from small_policy import WINDOWS, make_policy

import kinograph.torch

STEPS = 24
EVERY = 5
KILLED_AFTER = 13


def train(path: str, folder: Path, *, killed_after: int | None = None) -> None:
    """Train up to the last step, from the checkpoint if there is one; record each loss."""
    torch.set_num_threads(1)
    policy = make_policy()
    adam = torch.optim.Adam(policy.parameters())
    loader = kinograph.torch.Loader(
        path, windows=WINDOWS, anchor="actions", batch_size=16, seed=7, dtype="float32"
    )
    checkpoint, losses = folder / "checkpoint.pt", []
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        policy.load_state_dict(saved["policy"])
        adam.load_state_dict(saved["adam"])
        loader.load_state_dict(saved["loader"])
        losses = saved["losses"]
    while len(losses) < STEPS:
        for batch in loader:
            loss = policy(batch)
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
            if len(losses) % EVERY == 0:
                states = {"policy": policy, "adam": adam, "loader": loader}
                saved = {name: owner.state_dict() for name, owner in states.items()}
                torch.save(saved | {"losses": losses}, checkpoint)
            if len(losses) == killed_after:
                os.kill(os.getpid(), signal.SIGKILL)
            if len(losses) == STEPS:
                break
    (folder / "losses.json").write_text(json.dumps(losses))


def run(path: str, folder: Path, *options: str) -> int:
    """Train in a separate process."""
    command = [sys.executable, __file__, path, str(folder), *options]
    return subprocess.run(command, check=False).returncode


def compare(path: str) -> bool:
    """Train once without an interruption and once with one; tell whether all losses are equal."""
    with tempfile.TemporaryDirectory() as name:
        whole, stopped = Path(name) / "whole", Path(name) / "stopped"
        whole.mkdir()
        stopped.mkdir()
        run(path, whole)
        code = run(path, stopped, "--kill")
        print(f"killed after {KILLED_AFTER} steps (exit {code})")
        run(path, stopped)
        losses, again = (
            json.loads((each / "losses.json").read_text()) for each in (whole, stopped)
        )
    for step in range(0, STEPS, EVERY):
        print(f"  step {step:2}: loss {losses[step]:.6f} and {again[step]:.6f}")
    print(f"{STEPS} losses, {'all equal' if losses == again else 'NOT equal'}")
    return losses == again


if __name__ == "__main__":
    if len(sys.argv) > 2:
        killed = KILLED_AFTER if "--kill" in sys.argv else None
        train(sys.argv[1], Path(sys.argv[2]), killed_after=killed)
    else:
        sys.exit(not compare(sys.argv[1] if len(sys.argv) > 1 else "target/demo/lift.kino"))
