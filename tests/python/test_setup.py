"""`scripts/setup.sh` installs torch once, from the first index that has it, and records why it could not."""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
# A Python that creates environments of itself and logs what pip is asked to install. It has the indexes in $HAS.
PYTHON = """#!/usr/bin/env bash
case "$*" in
    "-c import sys; print"*) realpath "$0" ;;
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"pip install"*torch*)
        index=configured
        [[ "$*" != *"--index-url"* ]] || index=cpu
        echo "$index" >>pip.log
        [[ " $HAS " == *" $index "* ]] || { echo "ERROR: nothing found" >&2; exit 1; }
        mkdir -p .venv/lib/python3.11/site-packages/torch ;;
esac
"""


@pytest.fixture
def setup(tmp_path):
    """Return a function that runs setup in a checkout of nothing, and returns the indexes that pip was pointed at."""
    (tmp_path / "tools").mkdir()
    for name, code in (("python", PYTHON), ("nasm", "#!/bin/sh\n"), ("cargo", "#!/bin/sh\n")):
        program = tmp_path / "tools" / name
        program.write_text(code)
        program.chmod(0o755)
    checkout = tmp_path / "checkout"
    shutil.copytree(SCRIPTS, checkout / "scripts")

    def run(has="", **variables):
        log = checkout / "pip.log"
        log.write_text("")
        environment = os.environ | {"HAS": has, "PYTHON": str(tmp_path / "tools" / "python")}
        environment["PATH"] = f"{tmp_path / 'tools'}:{environment['PATH']}"
        environment.pop("KINOGRAPH_NO_TORCH", None)
        environment |= {"KINOGRAPH_NO_RAY": "1", "KINOGRAPH_NO_AZURITE": "1"}
        command = ["bash", str(checkout / "scripts" / "setup.sh")]
        subprocess.run(command, check=True, env=environment | variables, capture_output=True)
        return log.read_text().split()

    run.reason = checkout / ".venv" / "no-torch"
    return run


def test_the_cpu_build_is_preferred_and_installed_once(setup):
    assert setup(has="cpu configured") == ["cpu"]
    assert setup(has="cpu configured") == []
    assert not setup.reason.exists()


def test_without_the_cpu_build_the_configured_indexes_are_used(setup):
    assert setup(has="configured") == ["cpu", "configured"]
    assert not setup.reason.exists()


def test_a_failure_is_recorded_and_not_repeated(setup):
    assert setup() == ["cpu", "configured"]
    assert "nothing found" in setup.reason.read_text()
    assert "rm .venv/no-torch" in setup.reason.read_text()
    assert setup(has="cpu") == []


def test_torch_that_was_declined_is_installed_later(setup):
    assert setup(KINOGRAPH_NO_TORCH="1") == []
    assert "KINOGRAPH_NO_TORCH=1" in setup.reason.read_text()
    assert setup(has="cpu") == ["cpu"]
    assert not setup.reason.exists()
