"""Optional packages: a test whose package is missing is skipped, with the reason."""

import pathlib
import sys

import pytest

_WHY = {
    "accelerate": "pip install --no-deps accelerate psutil huggingface_hub",
    "jax": "it takes 0.5 GB; pip install jax",
    "google_crc32c": "see crates/kino_import/tests/fixtures/check_export_rlds.py",
    "material": "make docs",
    "mkdocs": "make docs",
    "mkdocstrings": "make docs",
    "lightning": "pip install --no-deps lightning lightning-utilities torchmetrics",
    "mcap_ros2": "pip install mcap mcap-ros2-support",
    "tensorflow_datasets": "see crates/kino_import/tests/fixtures/check_export_rlds.py",
    "webdataset": "pip install webdataset",
}


def optional(name):
    """Import a package, or skip the test (or, at the top of a file, all its tests)."""
    why = _WHY.get(name, "run `make setup`")
    left = pathlib.Path(sys.prefix) / f"no-{name}"
    if left.exists():
        why = left.read_text("utf-8").strip()
    return pytest.importorskip(name, reason=f"{name} is not installed: {why}")
