"""What is checked before a release, and how pip builds where nasm is missing."""

import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
# A maturin with the hooks of PEP 517, and nothing behind them.
HOOKS = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return name
"""


@pytest.fixture
def release(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("release")


@pytest.fixture
def wheel(tmp_path):
    """Return a function that builds a wheel of one library."""

    def build(*options):
        code, library = tmp_path / "core.c", tmp_path / "_core.abi3.so"
        code.write_text(
            "static int hidden(void) { return 3; } int shown(void) { return hidden(); }"
        )
        subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", library, code], check=True)
        path = tmp_path / "kinograph-0.1.0-cp310-abi3-manylinux_2_17_x86_64.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(library, "kinograph/_core.abi3.so")
        return path

    return build


def test_only_a_small_and_stripped_wheel_passes(release, wheel, monkeypatch, capsys):
    release.check_contents(wheel("-s"))
    assert "stripped    kinograph/_core.abi3.so" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="not stripped"):
        release.check_contents(wheel())
    monkeypatch.setattr(release, "MAX_WHEEL_BYTES", 100)
    with pytest.raises(SystemExit, match="more than 100"):
        release.check_contents(wheel("-s"))


def test_only_a_wheel_for_every_python_passes(release):
    with pytest.raises(SystemExit, match="not for every Python"):
        release.check_portability(pathlib.Path("kinograph-0.1.0-cp312-cp312-linux_x86_64.whl"))


def test_each_python_is_found_once_and_old_ones_are_not(release, tmp_path, monkeypatch):
    for name, python in (("python3", sys.executable), ("python3.9", "/bin/false")):
        (tmp_path / name).symlink_to(python)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{pathlib.Path(sys.executable).parent}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    base = pathlib.Path(os.path.realpath(sys._base_executable))
    assert release.find_pythons() == [base]


def test_hidden_programs_are_missing_and_others_are_not(release, tmp_path, monkeypatch):
    programs, links = tmp_path / "programs", tmp_path / "links"
    for folder in (programs, links):
        folder.mkdir()
    for name in ("cc", "nasm"):
        (programs / name).touch()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{tmp_path / 'missing'}")
    release.hide(("nasm",), links)
    assert [link.name for link in links.iterdir()] == ["cc"]


def build_options(folder, *programs, options=""):
    """Import the build backend with these programs on the path; return maturin's options and what was printed."""
    folder.mkdir()
    (folder / "maturin.py").write_text(HOOKS)
    for name in programs:
        (folder / name).touch(mode=0o755)
    environment = {"PATH": str(folder), "PYTHONPATH": f"{SCRIPTS}{os.pathsep}{folder}"}
    environment["MATURIN_PEP517_ARGS"] = options
    code = "import platform; platform.machine = lambda: 'x86_64'; import build_backend, os; "
    code += "print(os.environ['MATURIN_PEP517_ARGS'])"
    command = [shutil.which("python3"), "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip(), done.stderr


def test_without_nasm_pip_builds_without_simd_and_is_told(tmp_path):
    assert build_options(tmp_path / "with", "nasm", options="--profile dev") == (
        "--profile dev",
        "",
    )
    built, said = build_options(tmp_path / "without", options="--profile dev")
    assert built == "--profile dev --no-default-features"
    assert "install nasm" in said
