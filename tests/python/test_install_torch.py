"""Stand-ins for libraries that torch links against but never calls, tested with a fake torch of one function."""

import importlib
import pathlib
import platform
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="elsewhere torch comes without CUDA",
)


@pytest.fixture
def install_torch(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("install_torch")


def compile_c(path, code, *options):
    source = path.with_suffix(".c")
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source, *options], check=True)


@pytest.fixture
def libraries(tmp_path):
    """A library that needs two others, one with versioned symbols; both are then removed."""
    folder = tmp_path / "lib"
    folder.mkdir()
    versions = tmp_path / "versions.map"
    versions.write_text('"libcublas.so.13" { global: cublasCreate; };')
    for name, symbol, more in (
        ("libcublas.so.13", "cublasCreate", [f"-Wl,--version-script,{versions}"]),
        ("libnccl.so.2", "ncclSend", []),
    ):
        options = [f"-Wl,-soname,{name}", *more]
        compile_c(folder / name, f"int {symbol}(void) {{ return 3; }}", *options)
    needed = [folder / "libcublas.so.13", folder / "libnccl.so.2", "-Wl,-rpath,$ORIGIN"]
    code = "int cublasCreate(void), ncclSend(void); int own(void) { return 7; }"
    code += "int calls(void) { return cublasCreate() + ncclSend(); }"
    compile_c(folder / "libtorch_cuda.so", code, "-Wl,--no-as-needed", *needed)
    for name in ("libcublas.so.13", "libnccl.so.2"):
        (folder / name).unlink()
    return folder


def call(folder, function):
    """Load the library in its own process, with all symbols resolved at once as Python does, and call a function."""
    program = f"import ctypes, os; print(ctypes.CDLL({str(folder / 'libtorch_cuda.so')!r}, os.RTLD_NOW).{function}())"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_the_needs_of_a_library_are_read_from_its_file(install_torch, libraries):
    needs = install_torch.read_needs(libraries / "libtorch_cuda.so")
    assert {"libcublas.so.13", "libnccl.so.2"} <= set(needs.libraries)
    assert needs.symbols["cublasCreate"] == ("libcublas.so.13", "libcublas.so.13")
    assert needs.symbols["ncclSend"] == ("", "")
    assert "own" not in needs.symbols
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
        install_torch.read_needs(libraries / "libtorch_cuda.c")


def test_with_stubs_a_library_loads_and_a_call_says_what_is_missing(
    install_torch, libraries, tmp_path
):
    assert call(libraries, "own").returncode != 0
    install_torch.make_stubs(libraries, tmp_path / "nvidia")
    assert call(libraries, "own").stdout == "7\n"
    answer = call(libraries, "calls")
    assert answer.returncode != 0
    assert "this torch has no CUDA" in answer.stderr


def test_an_existing_library_is_not_replaced(install_torch, libraries, tmp_path):
    real = tmp_path / "nvidia" / "cu13" / "lib"
    real.mkdir(parents=True)
    (real / "libnccl.so.2").touch()
    install_torch.make_stubs(libraries, tmp_path / "nvidia")
    assert (libraries / "libcublas.so.13").exists()
    assert not (libraries / "libnccl.so.2").exists()


def test_the_reason_for_missing_torch_is_recorded(install_torch, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(install_torch, "REASON", tmp_path / "no-torch")
    monkeypatch.setattr(install_torch, "is_importable", lambda: False)
    monkeypatch.setenv("KINOGRAPH_NO_TORCH", "1")
    install_torch.main()
    assert "KINOGRAPH_NO_TORCH=1" in (tmp_path / "no-torch").read_text()
    assert "no torch" in capsys.readouterr().err
    monkeypatch.setattr(install_torch, "is_importable", lambda: True)
    install_torch.main()
    assert not (tmp_path / "no-torch").exists()
