"""Malicious files: every case of tests/hostile is refused or packed, without a crash, a hang or excess memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

import harness
import run

CASES = run.load()


@pytest.mark.parametrize("case", CASES, ids=[f"{case.area}-{case.name}" for case in CASES])
def test_a_hostile_file_is_harmless(case: harness.Case, tmp_path: Path) -> None:
    _, wrong = harness.attack(case, tmp_path)
    assert not wrong, "\n".join(wrong)
