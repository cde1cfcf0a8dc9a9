"""Builds what a release uploads, and checks it as PyPI and its users would: `make wheel` and `make sdist`.

    python scripts/release.py wheel [CARGO OPTION...]    dist/*.whl, a bill of materials inside and beside it
    python scripts/release.py sdist                      dist/*.tar.gz

One wheel serves every Python from 3.10 (abi3) on every Linux with glibc 2.17 or newer: zig, which brings its own
headers, links against that glibc on a machine that has a newer one. The wheel is then installed into a fresh
environment of each Python found on this machine, and used (`smoke.py`). The source distribution is built without nasm
and cmake on the `PATH`, as `pip install` does it on a machine with only Rust and a C compiler.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SBOM = DIST / "kinograph.cdx.json"
TOOLS = ROOT / ".tools" / "wheel"
REQUIREMENTS = ROOT / "scripts" / "requirements-wheel.txt"
RECORDING = ROOT / "tests" / "data" / "lift_3demos.hdf5"
#: PyPI's limit is 100 MB; ours keeps a dependency from growing the wheel unnoticed.
MAX_WHEEL_BYTES = 15_000_000
MANYLINUX = "manylinux_2_17"
OLDEST_PYTHON = (3, 10)


def main() -> None:
    """Build and check one of the two."""
    kind, *options = sys.argv[1:] or [""]
    DIST.mkdir(exist_ok=True)
    if kind == "wheel":
        install_tools()
        wheel = build_wheel(options)
        check_contents(wheel)
        check_portability(wheel)
        for python in find_pythons():
            check_install(python, wheel)
    elif kind == "sdist":
        check_sdist(build_sdist())
    else:
        sys.exit(__doc__)


def build_wheel(options: list[str]) -> pathlib.Path:
    """Build the release wheel."""
    remove(".whl")
    run("cargo", "xtask", "sbom", SBOM)
    fixed = ("--release", "--locked", "--out", DIST, "--sbom-include", SBOM)
    # maturin finds zig as a module of the first Python on the PATH.
    path = f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}"
    maturin = shutil.which("maturin") or "maturin"
    run(maturin, "build", *fixed, "--zig", "--compatibility", MANYLINUX, *options, PATH=path)
    return only(".whl")


def check_contents(wheel: pathlib.Path) -> None:
    """Check the size, and that debug symbols are gone."""
    size = wheel.stat().st_size
    print(f"size        {size / 1e6:.1f} MB")
    require(size < MAX_WHEEL_BYTES, f"the wheel has {size} bytes, more than {MAX_WHEEL_BYTES}")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        require(len(libraries) == 1, f"one library is expected, not {libraries}")
        sections = output("readelf", "--sections", "--wide", archive.extract(libraries[0], folder))
    require(".symtab" not in sections, f"{libraries[0]} is not stripped")
    print(f"stripped    {libraries[0]}")


def check_portability(wheel: pathlib.Path) -> None:
    """Check the tags against what the library really needs from Python and from glibc."""
    _, _, python, abi, platforms = wheel.stem.split("-")
    require((python, abi) == ("cp310", "abi3"), f"{wheel.name} is not for every Python from 3.10")
    shown = output(TOOLS / "bin" / "auditwheel", "show", wheel)
    found = re.search(r'platform tag:\s+"(\w+)"', shown)
    is_confirmed = found is not None and found[1] in platforms.split(".")
    require(is_confirmed, f"auditwheel does not confirm {platforms}:\n{shown}")
    print(f"auditwheel  {platforms}")
    output(TOOLS / "bin" / "abi3audit", "--strict", wheel)
    print("abi3audit   only the stable ABI of Python 3.10")


def find_pythons() -> list[pathlib.Path]:
    """Find every Python that the wheel is for: on the `PATH`, and those of pyenv."""
    folders = [pathlib.Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    folders += sorted(pyenv.glob("versions/*/bin"))
    candidates = [path for folder in folders for path in sorted(folder.glob("python3*"))]
    found = {}
    for candidate in candidates:
        if re.fullmatch(r"python3(\.\d+)?", candidate.name) and (python := base_python(candidate)):
            found.setdefault(python, None)
    require(bool(found), "no Python 3.10 or newer was found")
    return list(found)


def base_python(candidate: pathlib.Path) -> pathlib.Path | None:
    """Resolve links, shims and environments to the interpreter behind them; `None` if it is too old or broken."""
    code = "import os, sys; print(os.path.realpath(sys._base_executable)); sys.exit(sys.version_info < "
    command = [candidate, "-c", f"{code}{OLDEST_PYTHON})"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    return pathlib.Path(answer.stdout.strip()) if answer.returncode == 0 else None


def check_install(python: pathlib.Path, package: pathlib.Path, **variables: str) -> None:
    """Install the package into a fresh environment of this Python, and use it."""
    with tempfile.TemporaryDirectory() as folder:
        # Not every Python has ensurepip; the pip of .venv serves them all.
        run(python, "-m", "venv", "--without-pip", folder)
        fresh = pathlib.Path(folder) / "bin" / "python"
        pip = (sys.executable, "-m", "pip", "--python", fresh, "install", "--quiet")
        run(*pip, "--disable-pip-version-check", package, **variables)
        # From another folder, so that the sources of the checkout are not what is imported.
        output(fresh, ROOT / "scripts" / "smoke.py", RECORDING, cwd=folder)
        version = output(fresh, "-c", "import platform; print(platform.python_version())").strip()
    print(f"installed   Python {version:8} {python}")


def build_sdist() -> pathlib.Path:
    """Build the source distribution."""
    remove(".tar.gz")
    run("maturin", "sdist", "--out", DIST)
    return only(".tar.gz")


def check_sdist(sdist: pathlib.Path) -> None:
    """Install it without nasm and cmake on the `PATH`; the development profile is built faster, and the same in kind."""
    with tempfile.TemporaryDirectory() as folder:
        hidden = hide(("nasm", "yasm", "cmake"), pathlib.Path(folder))
        target = ROOT / "target" / "sdist"
        variables = {"PATH": str(hidden), "CARGO_TARGET_DIR": str(target)}
        check_install(find_pythons()[0], sdist, MATURIN_PEP517_ARGS="--profile dev", **variables)
    print(f"size        {sdist.stat().st_size / 1e6:.1f} MB")


def hide(names: tuple[str, ...], folder: pathlib.Path) -> pathlib.Path:
    """Fill a folder with links to every program on the `PATH` but these."""
    own = {str(ROOT / ".venv" / "bin"), str(ROOT / ".tools" / "bin")}
    for source in os.environ["PATH"].split(os.pathsep):
        if source in own or not pathlib.Path(source).is_dir():
            continue
        for program in pathlib.Path(source).iterdir():
            link = folder / program.name
            if program.name not in names and not link.is_symlink():
                link.symlink_to(program)
    return folder


def install_tools() -> None:
    """Create the environment of requirements-wheel.txt, or update it."""
    stamp = TOOLS / "requirements.txt"
    if stamp.exists() and stamp.read_text() == REQUIREMENTS.read_text():
        return
    venv.create(TOOLS, clear=True, with_pip=True)
    pip = (TOOLS / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--disable-pip-version-check", "--requirement", REQUIREMENTS)
    shutil.copy(REQUIREMENTS, stamp)


def run(*command: str | pathlib.Path, **variables: str) -> None:
    """Run a command with its output shown; the first failure ends everything."""
    print("+", *command, file=sys.stderr, flush=True)
    done = subprocess.run(command, check=False, cwd=ROOT, env=os.environ | variables)
    require(done.returncode == 0, f"`{command[0]}` failed with exit code {done.returncode}")


def output(*command: str | pathlib.Path, cwd: str | pathlib.Path = ROOT) -> str:
    """Run a command and return what it printed; if it fails, show that instead."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd)
    require(done.returncode == 0, f"`{command[0]}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def require(condition: object, message: str) -> None:
    """Stop unless the condition holds."""
    if not condition:
        sys.exit(f"error: {message}")


def remove(ending: str) -> None:
    """Remove what an earlier build left in dist/."""
    for path in DIST.glob(f"*{ending}"):
        path.unlink()


def only(ending: str) -> pathlib.Path:
    """Return the one file in dist/ with this ending."""
    (path,) = DIST.glob(f"*{ending}")
    return path


if __name__ == "__main__":
    main()
