"""Creates the environment of this study: `python bench/quantise/setup.py`.

    target/quantise/env    Meta-World and MuJoCo from PyPI; torch and kinograph from this checkout's .venv, as `make build` left it

Lift is recorded by bench/convergence/lift.py, in the environment that bench/convergence/setup.py creates.
"""

import json
import pathlib
import subprocess
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "target" / "quantise" / "env"
INSTALLS = ["metaworld==3.1.1", "mujoco==3.3.0", "h5py==3.16.0", "numpy==2.4.6"]
#: Prints where the checkout's own Python finds packages.
ASK = "import json, sys; print(json.dumps([one for one in sys.path if one.endswith('-packages')]))"


def main() -> None:
    """Create the environment, or update it."""
    if not (ENVIRONMENT / "bin" / "python").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    python = str(ENVIRONMENT / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *INSTALLS], check=True)
    own = str(ROOT / ".venv" / "bin" / "python")
    found = subprocess.run([own, "-c", ASK], check=True, capture_output=True, text=True)
    (packages,) = (ENVIRONMENT / "lib").glob("python*/site-packages")
    # Packages of the environment come first; torch is too large to install once more.
    shared = [*json.loads(found.stdout), str(ROOT / "python")]
    (packages / "shared.pth").write_text("".join(f"{one}\n" for one in shared), "utf-8")


if __name__ == "__main__":
    main()
