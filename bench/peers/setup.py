"""Creates the environment that the comparison runs in: `python bench/peers/setup.py`.

    target/peers/venv      one virtual environment: every loader of requirements.txt, torch, and a release build of this checkout
    target/peers/robodm    robodm and the PyAV version that it needs, which differs from LeRobot's
    target/peers/sysroot   the libraries that FFCV is compiled against, if the machine has none (`sysroot.py`)

torch comes from pip's indexes, on Linux with CUDA (5 GB). Everything is compared on the CPU: with
`PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu` pip prefers the CPU build. torchcodec, which LeRobot decodes with, needs FFmpeg's shared libraries (Debian: `apt install ffmpeg`).
A loader that cannot be installed is reported, and the comparison continues without it.
"""

import os
import pathlib
import subprocess
import sys
import venv

import sysroot

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "target" / "peers"
VENV = WORK / "venv"
TORCH = "torch==2.13.0"
# Only available as source; its imports are in requirements-shared.txt.
FFCV = "ffcv==1.0.2"


def run(*command: str | pathlib.Path, variables: dict[str, str] | None = None) -> str:
    """Run a command and return its output; setup stops at the first failure."""
    arguments = [str(argument) for argument in command]
    print("+", " ".join(arguments), file=sys.stderr)
    env = os.environ | (variables or {})
    return subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


def pip(*arguments: str | pathlib.Path, variables: dict[str, str] | None = None) -> None:
    """Install into the environment."""
    run(VENV / "bin" / "python", "-m", "pip", "install", "-q", *arguments, variables=variables)


def pip_ffcv() -> None:
    """Compile FFCV, or print why not."""
    try:
        # A wheel that pip cached for another checkout would look for the libraries there.
        fresh = ("--no-deps", "--no-cache-dir", FFCV)
        pip(*fresh, variables=sysroot.make(WORK / "sysroot"))
    except (sysroot.MissingLibraryError, subprocess.CalledProcessError) as error:
        print(f"setup: the comparison skips FFCV: {error}", file=sys.stderr)


def main() -> None:
    """Create the environment, or update it."""
    if not (VENV / "bin" / "python").exists():
        venv.create(VENV, with_pip=True)
    pip(TORCH)
    pip("-r", HERE / "requirements-shared.txt")
    pip("--no-deps", "-r", HERE / "requirements.txt")
    beside = ("--upgrade", "--target", WORK / "robodm")
    pip("--no-deps", *beside, "-r", HERE / "requirements-robodm.txt")
    pip_ffcv()
    pip("maturin>=1.9,<2")
    os.environ["VIRTUAL_ENV"] = str(VENV)
    maturin = VENV / "bin" / "maturin"
    manifest = ROOT / "crates" / "kino_py" / "Cargo.toml"
    # As in `make build` if nasm is not available.
    features = ["--no-default-features"] * (ROOT / ".tools" / "no-nasm").exists()
    run(maturin, "develop", "--release", "--locked", *features, "--manifest-path", manifest)


if __name__ == "__main__":
    main()
