"""Installs torch into the environment of the Python that runs this, for the CPU alone.

    python scripts/install_torch.py                  does nothing if torch is there, or if KINOGRAPH_NO_TORCH=1 is set
    python scripts/install_torch.py torch==2.13.0    that one

PyPI's torch for Linux on x86-64 comes with 7 GB of CUDA libraries, which a machine without a GPU never calls, and cannot be
loaded without them. So here it comes without, and what its libraries miss is made on the spot, by the C compiler:

    libtorch_cuda.so    needs libcublas.so.13, and of it cublasCreate_v2 of version libcublas.so.13, …
    libcublas.so.13     a stand-in: these names, of these versions, and each says its name and aborts

What is left takes 1.4 GB. On every other machine PyPI's torch is small as it is.

It may fail, as there may be no network and no room: then `no-torch` in the environment's folder says why, for the tests that are
skipped. Nothing is left half installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from elf import Needs, read_needs

# Those that were tried with stand-ins; the CUDA runtime, which every import of torch calls, is real, and small.
TORCH = "torch>=2.12,<2.16"
CUDA_RUNTIME = "nvidia-cuda-runtime>=13,<14"
# The wheel, what it unpacks to, and some room to live.
ROOM_BYTES = 3_000_000_000

REASON = Path(sys.prefix) / "no-torch"
# Without libcuda, the driver: torch looks for it only when it has found a GPU.
_CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)(?!da\.so)\w*\.so\.\d+")
_CUDA_SYMBOL = re.compile(r"(cu|nv|nccl)\w+")
_CUDA_PACKAGE = re.compile(r"(nvidia|cuda|triton)\b")


class NotInstalledError(Exception):
    """Why there is no torch."""


def main() -> None:
    """Install torch, or leave the reason why not."""
    REASON.unlink(missing_ok=True)
    try:
        if not is_importable():
            install(sys.argv[1] if len(sys.argv) > 1 else TORCH)
    except NotInstalledError as error:
        REASON.write_text(f"{error}; to try again: rm .venv/.torch-stamp && make setup\n")
        print(f"setup: no torch, and no test that needs it: {error}", file=sys.stderr)


def install(torch: str) -> None:
    """Install torch in the way of this machine."""
    if os.environ.get("KINOGRAPH_NO_TORCH") == "1":
        raise NotInstalledError("KINOGRAPH_NO_TORCH=1 was set when the environment was made")
    free = shutil.disk_usage(sys.prefix).free
    if free < ROOM_BYTES:
        raise NotInstalledError(
            f"{sys.prefix} has {free / 1e9:.1f} GB of room, and torch needs {ROOM_BYTES / 1e9:.0f}"
        )
    print("setup: installing torch, for the CPU alone", file=sys.stderr)
    try:
        if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
            install_without_cuda(torch)
        else:
            pip("install", torch)
        if not is_importable():
            raise NotInstalledError("torch was installed and cannot be imported")
    except NotInstalledError:
        # Half a torch would fail tests, where none skips them.
        command = [sys.executable, "-m", "pip", "uninstall", "--yes", "torch"]
        subprocess.run(command, check=False, capture_output=True)
        raise


def install_without_cuda(torch: str) -> None:
    """Install torch and what it needs but CUDA, and stand-ins for that."""
    pip("install", "--no-deps", torch)
    needed = importlib.metadata.requires("torch") or []
    others = [line for line in needed if not _CUDA_PACKAGE.match(line) and "extra ==" not in line]
    pip("install", CUDA_RUNTIME, *others)
    site = Path(str(importlib.metadata.distribution("torch").locate_file("")))
    make_stand_ins(site / "torch" / "lib", site / "nvidia")


def make_stand_ins(libraries: Path, real: Path) -> None:
    """Make every CUDA library that the libraries in a folder need and that is not real, in that folder."""
    needs = [read_needs(path) for path in sorted(libraries.glob("*.so"))]
    there = {path.name for folder in (libraries, real) for path in folder.rglob("*.so*")}
    missing = {name for need in needs for name in need.libraries if _CUDA_LIBRARY.fullmatch(name)}
    for name in sorted(missing - there):
        make_stand_in(libraries / name, symbols_of(name, needs))


def symbols_of(library: str, needs: list[Needs]) -> dict[str, str]:
    """Find what is asked of a library: symbols, each with its version or nothing.

    A symbol without a version may be any library's: it goes into each stand-in, and the first that is loaded serves.
    """
    asked = {}
    for need in needs:
        for symbol, (source, version) in need.symbols.items():
            if source == library or (not source and _CUDA_SYMBOL.fullmatch(symbol)):
                asked[symbol] = version
    return asked


def make_stand_in(path: Path, symbols: dict[str, str]) -> None:
    """Make a library whose functions say their names and abort."""
    source = [
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "static void stop(const char *name) {",
        f'    fprintf(stderr, "%s of {path.name} was called; this torch has no CUDA\\n", name);',
        "    abort();",
        "}",
        *(f'void {symbol}(void) {{ stop("{symbol}"); }}' for symbol in sorted(symbols)),
    ]
    script = []
    for version in sorted(set(symbols.values()) - {""}):
        names = " ".join(f"{name};" for name in sorted(symbols) if symbols[name] == version)
        script.append(f'"{version}" {{ global: {names} }};')
    with tempfile.TemporaryDirectory() as folder:
        code, versions = Path(folder) / "stand_in.c", Path(folder) / "versions.map"
        code.write_text("\n".join(source))
        versions.write_text("\n".join(script))
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", "-o", str(path), str(code)]
        command += [f"-Wl,-soname,{path.name}"]
        command += [f"-Wl,--version-script,{versions}"] * bool(script)
        run("the C compiler", command)


def is_importable() -> bool:
    """Whether torch is there and works."""
    command = [sys.executable, "-c", "import torch; torch.zeros(1).add(1)"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def pip(verb: str, *arguments: str) -> None:
    """Run pip without a cache, as what it downloads is needed once, and without compiling what may never be imported."""
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-compile"]
    run("pip", [sys.executable, "-m", "pip", verb, *options, *arguments])


def run(name: str, command: list[str]) -> None:
    """Run a command; its last line of complaint is the reason for there being no torch."""
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or ["it said nothing"]
        raise NotInstalledError(f"{name} failed: {lines[-1]}")


if __name__ == "__main__":
    main()
