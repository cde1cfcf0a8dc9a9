"""Uses the installed package as a user would: `python scripts/smoke.py RECORDING`, in an environment that has only the package."""

import importlib.metadata
import pathlib
import subprocess
import sys
import tempfile

import kinograph.numpy

IMAGE = "obs/agentview_image"


def main(recording: str) -> None:
    """Pack losslessly and as JPEG, load a batch of each, and run the command; AV1 asks for PyAV, which is not there."""
    version = importlib.metadata.version("kinograph")
    command = pathlib.Path(sys.executable).with_name("kinograph")
    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder) / "plan.toml"
        plan.write_text('[[stream]]\nkind = "image"\ncodec = "av1"\nbound = "psnr(40)"\n')
        refused = subprocess.run(
            [command, "pack", recording, pathlib.Path(folder) / "av1.kino", "--plan", plan],
            check=False,
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 1, refused.stderr
        assert "pip install av" in refused.stderr, refused.stderr
        for name, options in (("lossless", []), ("jpeg", ["--quality", "90"])):
            packed = pathlib.Path(folder) / f"{name}.kino"
            subprocess.run([command, "pack", recording, packed, *options], check=True)
            windows = {IMAGE: [-1, 0], "actions": range(16)}
            loader = kinograph.numpy.Loader(packed, windows=windows, batch_size=8, seed=7)
            batch = next(iter(loader))
            assert batch[IMAGE].shape == (8, 2, 84, 84, 3), batch[IMAGE].shape
            assert batch["actions"].shape == (8, 16, 7), batch["actions"].shape
    answer = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    assert answer.stdout.startswith(f"kinograph {version}"), answer.stdout
    print(answer.stdout.strip())


if __name__ == "__main__":
    main(sys.argv[1])
