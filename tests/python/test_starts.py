"""A short run of ``bench/starts.py``: loaders that start and end in different ways, and interrupted loops."""

import pathlib
import subprocess
import sys

import pytest

STARTS = pathlib.Path(__file__).parents[2] / "bench" / "starts.py"


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/task").exists(), reason="threads are counted in /proc"
)
def test_loaders_start_and_end_in_different_ways_and_survive_interrupts():
    command = [sys.executable, str(STARTS), "--starts", "36", "--interrupts", "8"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "fork: 12, forkserver: 12, spawn: 12, interrupts: 8" in done.stdout
