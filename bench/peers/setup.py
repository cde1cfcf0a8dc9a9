"""Makes the environment that the comparison runs in: `python bench/peers/setup.py`.

    target/peers/venv    one virtual environment: every loader of requirements.txt, torch, and this checkout, built for speed

Everything is compared on the processor, so torch comes without the 7 GB of its CUDA libraries (`scripts/install_torch.py`); with
`--cuda` they are installed. torchcodec, which LeRobot decodes with, needs FFmpeg's shared libraries (Debian: `apt install ffmpeg`).
"""

import argparse
import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = ROOT / "target" / "peers" / "venv"
TORCH = "torch==2.13.0"


def run(*command: str | pathlib.Path) -> str:
    """Run a command and give what it printed; the whole set-up ends where one fails."""
    words = [str(word) for word in command]
    print("+", " ".join(words), file=sys.stderr)
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def pip(*words: str | pathlib.Path) -> None:
    """Install into the environment."""
    run(VENV / "bin" / "python", "-m", "pip", "install", "-q", *words)


def main() -> None:
    """Make the environment, or bring it up to date."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--cuda", action="store_true", help="torch with its CUDA libraries (7 GB)")
    arguments = options.parse_args()
    if not (VENV / "bin" / "python").exists():
        venv.create(VENV, with_pip=True)
    if arguments.cuda:
        pip(TORCH)
    else:
        run(VENV / "bin" / "python", ROOT / "scripts" / "install_torch.py", TORCH)
    pip("-r", HERE / "requirements-shared.txt")
    pip("--no-deps", "-r", HERE / "requirements.txt")
    pip("maturin>=1.9,<2")
    os.environ["VIRTUAL_ENV"] = str(VENV)
    maturin = VENV / "bin" / "maturin"
    manifest = ROOT / "crates" / "kino_py" / "Cargo.toml"
    run(maturin, "develop", "--release", "--locked", "--manifest-path", manifest)


if __name__ == "__main__":
    main()
