"""Creates the environments of this study: `python bench/convergence/setup.py`.

    target/convergence/record    robosuite and MuJoCo, for lift.py
    target/convergence/train     robomimic from PyPI, torch, and this checkout as `make build` left it, for train.py

Two, because robomimic's training needs packages of 2024. Both come from pip's indexes; on Linux torch is the build with CUDA there
(5 GB), though nothing here uses a GPU.
"""

import os
import pathlib
import subprocess
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "target" / "convergence"
RECORD = ["robosuite==1.5.2", "mujoco==3.3.7", "h5py==3.16.0"]
# Without its own requirements, which include a simulator.
ROBOMIMIC = "robomimic==0.3.0"


def make(name: str, *installs: list[str]) -> pathlib.Path:
    """Create an environment, or update it."""
    folder = WORK / name
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    for arguments in installs:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *arguments]
        subprocess.run(pip, check=True)
    return folder


def main() -> None:
    """Create both."""
    make("record", RECORD)
    requirements = ["-r", str(HERE / "requirements.txt")]
    train = make("train", requirements, ["--no-deps", ROBOMIMIC], ["maturin>=1.9,<2"])
    maturin = [str(train / "bin" / "maturin"), "develop", "--profile", "dev", "--locked"]
    manifest = ROOT / "crates" / "kino_py" / "Cargo.toml"
    # As in `make build` if nasm is not available.
    features = ["--no-default-features"] * (ROOT / ".tools" / "no-nasm").exists()
    command = [*maturin, *features, "--manifest-path", str(manifest)]
    subprocess.run(command, check=True, env=os.environ | {"VIRTUAL_ENV": str(train)})


if __name__ == "__main__":
    main()
