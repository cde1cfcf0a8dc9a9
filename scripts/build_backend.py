"""The build backend that pip calls (PEP 517): maturin, without SIMD if the assembler `nasm` is missing.

libjpeg-turbo and rav1d need nasm for their SIMD on x86, and PyPI has no package of it. Without it the build would
fail; with the default features off it works, several times slower for JPEG and AV1. `kinograph --version` says so too,
because pip shows what a backend prints only with `-v`.
"""

import os
import platform
import shutil
import sys

from maturin import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

NOTICE = """
kinograph: the assembler `nasm` was not found, so JPEG and AV1 are built without SIMD: same pixels, several times slower.
kinograph: to fix it, install nasm (apt-get install nasm; or dnf, brew, pacman) and build again.
"""


def build_without_simd() -> None:
    """Add the option for it to those that maturin reads from the environment."""
    options = os.environ.get("MATURIN_PEP517_ARGS", "")
    if "--no-default-features" not in options:
        os.environ["MATURIN_PEP517_ARGS"] = f"{options} --no-default-features".strip()
    print(NOTICE, file=sys.stderr)


# On other CPUs the kernels are C and Rust, or assembled by the C compiler.
if platform.machine().lower() in {"x86_64", "amd64", "i686"} and not shutil.which("nasm"):
    build_without_simd()
