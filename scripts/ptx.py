"""Compile the CUDA kernels of kino_cuda to PTX, which is committed: building Kinograph needs no CUDA toolkit.

    python scripts/ptx.py

NVRTC comes from PyPI into a temporary folder. Drivers take PTX that is older than they are: that of 11.8 works with those
since 520, which nvJPEG needs anyway, and on every GPU since Maxwell.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

NVRTC = "nvidia-cuda-nvrtc-cu11==11.8.89"
KERNELS = Path(__file__).parent.parent / "crates/kino_cuda/src/kernels"
OPTIONS = [b"--gpu-architecture=compute_52", b"--std=c++11"]


def nvrtc(folder: str) -> ctypes.CDLL:
    """Download the compiler to a folder, and load it."""
    download = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        folder,
        NVRTC,
    ]
    subprocess.run(download, check=True)
    for wheel in Path(folder).glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)
    # It loads its built-in headers by name.
    library, headers = (
        next(Path(folder).rglob(name)) for name in ("libnvrtc.so.*", "libnvrtc-builtins.so.*")
    )
    ctypes.CDLL(str(headers), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(library))


def compile_ptx(compiler: ctypes.CDLL, source: bytes) -> str:
    """Make PTX of CUDA C; an error has the compiler's messages."""
    program = ctypes.c_void_p()
    compiler.nvrtcCreateProgram(ctypes.byref(program), source, b"images.cu", 0, None, None)
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    failed = compiler.nvrtcCompileProgram(program, len(OPTIONS), options)
    what = "ProgramLog" if failed else "PTX"
    size = ctypes.c_size_t()
    getattr(compiler, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(compiler, f"nvrtcGet{what}")(program, text)
    if failed:
        sys.exit(text.value.decode())
    return text.value.decode()


def main() -> None:
    """Write images.ptx."""
    source = (KERNELS / "images.cu").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        ptx = compile_ptx(nvrtc(folder), source)
    head = f"// Made by `python scripts/ptx.py` ({NVRTC}) of images.cu with CRC-32 {zlib.crc32(source):08x}.\n"
    lines = (line.rstrip() for line in ptx.splitlines() if not line.startswith("//"))
    (KERNELS / "images.ptx").write_text(head + "\n".join(lines).strip() + "\n")


if __name__ == "__main__":
    main()
