"""Installs torch without CUDA into the environment of the Python that runs this script.

    python scripts/install_torch.py                  does nothing if torch is installed, or if KINOGRAPH_NO_TORCH=1 is set
    python scripts/install_torch.py torch==2.13.0    installs that version

PyPI's torch for Linux on x86-64 depends on 7 GB of CUDA libraries, which a machine without a GPU never calls, and cannot be
loaded without them. This script installs torch without them and builds the missing libraries with the C compiler:

    libtorch_cuda.so    needs libcublas.so.13 and, from it, cublasCreate_v2 with version libcublas.so.13, …
    libcublas.so.13     a stub: the same names and versions; each function prints its name and aborts

That takes 1.4 GB. On every other platform PyPI's torch is small anyway.

It may fail for lack of network or disk space: `no-torch` in the environment's folder then holds the reason, for the tests that
are skipped. A partial installation is removed.
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

# Versions tested with stubs. The CUDA runtime, which every import of torch calls, is real, and small.
TORCH = "torch>=2.12,<2.16"
CUDA_RUNTIME = "nvidia-cuda-runtime>=13,<14"
# The wheel, its unpacked contents, and some spare room.
ROOM_BYTES = 3_000_000_000

REASON = Path(sys.prefix) / "no-torch"
# Except libcuda, the driver: torch looks for it only when it has found a GPU.
_CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)(?!da\.so)\w*\.so\.\d+")
_CUDA_SYMBOL = re.compile(r"(cu|nv|nccl)\w+")
_CUDA_PACKAGE = re.compile(r"(nvidia|cuda|triton)\b")


class NotInstalledError(Exception):
    """Why torch is not installed."""


def main() -> None:
    """Install torch, or write down why not."""
    REASON.unlink(missing_ok=True)
    try:
        if not is_importable():
            install(sys.argv[1] if len(sys.argv) > 1 else TORCH)
    except NotInstalledError as error:
        REASON.write_text(f"{error}; to try again: rm .venv/.torch-stamp && make setup\n")
        print(f"setup: no torch; the tests that need it are skipped: {error}", file=sys.stderr)


def install(torch: str) -> None:
    """Install torch as this platform requires."""
    if os.environ.get("KINOGRAPH_NO_TORCH") == "1":
        raise NotInstalledError("KINOGRAPH_NO_TORCH=1 was set when the environment was created")
    free = shutil.disk_usage(sys.prefix).free
    if free < ROOM_BYTES:
        raise NotInstalledError(
            f"{sys.prefix} has {free / 1e9:.1f} GB of free space, but torch needs {ROOM_BYTES / 1e9:.0f}"
        )
    print("setup: installing torch (CPU only)", file=sys.stderr)
    try:
        if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
            install_without_cuda(torch)
        else:
            pip("install", torch)
        if not is_importable():
            raise NotInstalledError("torch was installed but cannot be imported")
    except NotInstalledError:
        # A partial torch would fail tests; without torch they are skipped.
        command = [sys.executable, "-m", "pip", "uninstall", "--yes", "torch"]
        subprocess.run(command, check=False, capture_output=True)
        raise


def install_without_cuda(torch: str) -> None:
    """Install torch and its dependencies without CUDA, and stubs for the CUDA libraries."""
    pip("install", "--no-deps", torch)
    needed = importlib.metadata.requires("torch") or []
    others = [line for line in needed if not _CUDA_PACKAGE.match(line) and "extra ==" not in line]
    pip("install", CUDA_RUNTIME, *others)
    site = Path(str(importlib.metadata.distribution("torch").locate_file("")))
    make_stubs(site / "torch" / "lib", site / "nvidia")


def make_stubs(libraries: Path, real: Path) -> None:
    """Build a stub for every CUDA library that the libraries in a folder need and that is not installed."""
    needs = [read_needs(path) for path in sorted(libraries.glob("*.so"))]
    there = {path.name for folder in (libraries, real) for path in folder.rglob("*.so*")}
    missing = {name for need in needs for name in need.libraries if _CUDA_LIBRARY.fullmatch(name)}
    for name in sorted(missing - there):
        make_stub(libraries / name, symbols_of(name, needs))


def symbols_of(library: str, needs: list[Needs]) -> dict[str, str]:
    """Find what is needed from a library: symbols, each with its version or an empty string.

    A symbol without a version may come from any library: it goes into each stub, and the first one loaded is used.
    """
    asked = {}
    for need in needs:
        for symbol, (source, version) in need.symbols.items():
            if source == library or (not source and _CUDA_SYMBOL.fullmatch(symbol)):
                asked[symbol] = version
    return asked


def make_stub(path: Path, symbols: dict[str, str]) -> None:
    """Build a library whose functions print their names and abort."""
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
        code, versions = Path(folder) / "stub.c", Path(folder) / "versions.map"
        code.write_text("\n".join(source))
        versions.write_text("\n".join(script))
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", "-o", str(path), str(code)]
        command += [f"-Wl,-soname,{path.name}"]
        command += [f"-Wl,--version-script,{versions}"] * bool(script)
        run("the C compiler", command)


def is_importable() -> bool:
    """Whether torch is installed and works."""
    command = [sys.executable, "-c", "import torch; torch.zeros(1).add(1)"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def pip(verb: str, *arguments: str) -> None:
    """Run pip without a cache, because downloads are needed only once, and without compiling what may never be imported."""
    options = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-compile"]
    run("pip", [sys.executable, "-m", "pip", verb, *options, *arguments])


def run(name: str, command: list[str]) -> None:
    """Run a command; the last line of its stderr becomes the reason why torch is not installed."""
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or ["it printed nothing"]
        raise NotInstalledError(f"{name} failed: {lines[-1]}")


if __name__ == "__main__":
    main()
