"""The ``kinograph`` command as the wheel installs it."""

import signal
import subprocess
import sys

import pytest

import kinograph
from kinograph.__main__ import main


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "kinograph", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_prints_its_version_and_its_subcommands():
    version = run("--version")
    assert version.returncode == 0
    assert kinograph.__version__ in version.stdout
    help_text = run("--help")
    assert help_text.returncode == 0
    for verb in ("pack", "info", "verify"):
        assert verb in help_text.stdout


def test_the_exit_code_reports_success_failure_and_wrong_usage(tmp_path, lift_path):
    assert run("verify", str(lift_path)).returncode == 0
    missing = run("info", str(tmp_path / "nothing.kino"))
    assert missing.returncode == 1
    assert "does not exist" in missing.stderr
    assert run("no-such-verb").returncode == 2


def test_pythons_ctrl_c_handler_is_restored_after_the_command(monkeypatch, capfd):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "argv", ["kinograph", "--version"])
    assert main() == 0
    assert kinograph.__version__ in capfd.readouterr().out
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_installed_command_is_the_same(argument):
    script = subprocess.run(["kinograph", argument], capture_output=True, text=True, check=False)
    assert script.returncode == 0
    assert script.stdout.splitlines()[0] == run(argument).stdout.splitlines()[0]


def test_probe_without_a_candidate_names_every_way_to_give_one(lift_path):
    wrong = run("probe", str(lift_path))
    assert wrong.returncode == 2
    for option in ("--codec", "--plan", "--against"):
        assert option in wrong.stderr.split("Usage")[0]


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--rate", "10", "--rate is for recordings, and"),
        ("--episodes", "0-1", "--streams, --exclude and --episodes are for recordings, and"),
    ],
)
def test_probe_of_a_dataset_says_what_replaces_an_option_of_recordings(
    lift_path, option, value, text
):
    wrong = run("probe", str(lift_path), "--codec", "**=lossless", option, value)
    assert wrong.returncode == 1
    assert text in wrong.stderr
    assert ("kinograph repack" in wrong.stderr) == (option == "--episodes")


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_missing_library_is_named_with_how_to_install_it(name):
    code = f"import sys; sys.modules[{name!r}] = None; import kinograph.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{name} is not installed; run `pip install {name}`" in done.stderr
