"""The Python in the documents runs, and so does the example that trains nothing."""

import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def lift_kino(tmp_path_factory):
    path = tmp_path_factory.mktemp("docs") / "lift.kino"
    kinograph.pack(ROOT / "tests/data/lift_3demos.hdf5", path)
    return path


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/windows.md",
        "docs/order.md",
        "docs/loader.md",
        "docs/report.md",
        "docs/import.md",
        "docs/doctor.md",
    ],
)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, lift_kino, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests/data/lift_3demos.hdf5", tmp_path / "demos.hdf5")
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S)
    assert blocks
    names = {"kinograph": kinograph, "np": np, "ds": kinograph.open(lift_kino)}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_the_example_of_windows_runs():
    answer = subprocess.run(
        [sys.executable, ROOT / "examples/windows.py"], check=True, capture_output=True, text=True
    )
    assert "the same 12 batches" in answer.stdout
