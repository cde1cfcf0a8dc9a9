"""The C++ libraries that FFCV is compiled against, without root; used by `setup.py`.

    target/peers/sysroot/usr/…            Debian's packages of OpenCV (core and imgproc, with LAPACK) and libjpeg-turbo, unpacked
    target/peers/sysroot/pkgconfig/*.pc   their locations, for FFCV's setup.py

FFCV calls one function of OpenCV, `resize`, but includes the header of all its modules; those need 700 MB. The list of modules
is reduced to the two that are unpacked. A machine with `libopencv-dev` and `libturbojpeg0-dev` uses its own.
"""

import pathlib
import re
import shutil
import subprocess

# What must be linked, with dependencies; package names contain the release, which differs between Debian releases.
WANTED = re.compile(
    r"libopencv-(core|imgproc)(-dev|\d+\w*)|libturbojpeg\w*(-dev)?|libtbb\d+\w*|lib(lapack|blas)3|libgfortran5|libquadmath0"
)
NEEDED = ("libopencv-imgproc-dev", "libturbojpeg0-dev")
MODULES = "#define HAVE_OPENCV_CORE\n#define HAVE_OPENCV_IMGPROC\n"


class MissingLibraryError(Exception):
    """Why the libraries are not available."""


def make(folder: pathlib.Path) -> dict[str, str]:
    """Return the environment variables for building FFCV; unpack the libraries unless the machine has them."""
    if shutil.which("pkg-config") is None:
        raise MissingLibraryError("pkg-config is missing; install it")
    if _is_installed():
        return {}
    descriptions = folder / "pkgconfig"
    if not descriptions.exists():
        _unpack(folder)
        _describe(folder, descriptions)
    # DT_RPATH, not DT_RUNPATH: OpenCV's own libraries must be found in the same way.
    libraries = _libraries(folder)
    # Debian keeps these two in folders of their own, and links to them when they are installed.
    paths = [libraries, libraries / "lapack", libraries / "blas"]
    return {
        "PKG_CONFIG_PATH": str(descriptions),
        "LDFLAGS": f"-Wl,--disable-new-dtags,-rpath,{':'.join(map(str, paths))}",
    }


def _is_installed() -> bool:
    found = subprocess.run(["pkg-config", "--exists", "opencv4", "libturbojpeg"], check=False)
    return found.returncode == 0


def _unpack(folder: pathlib.Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise MissingLibraryError(
            "this is not a Debian system; install the development packages of OpenCV and libjpeg-turbo"
        )
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    options = ["--recurse", *(f"--no-{kind}" for kind in kinds)]
    listed = _run(["apt-cache", "depends", *options, *NEEDED], folder)
    packages = sorted({line for line in listed.splitlines() if WANTED.fullmatch(line)})
    _run(["apt-get", "download", *packages], archives)
    for archive in archives.glob("*.deb"):
        _run(["dpkg", "-x", str(archive), str(folder)], folder)
    (_headers(folder) / "opencv2" / "opencv_modules.hpp").write_text(MODULES)


def _run(command: list[str], folder: pathlib.Path) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        complaint = done.stderr.strip().splitlines()[-1:]
        raise MissingLibraryError(f"`{' '.join(command[:2])}` failed: {''.join(complaint)}")
    return done.stdout


def _headers(folder: pathlib.Path) -> pathlib.Path:
    return folder / "usr" / "include" / "opencv4"


def _libraries(folder: pathlib.Path) -> pathlib.Path:
    found = next((folder / "usr" / "lib").rglob("libturbojpeg.so"), None)
    if found is None:
        raise MissingLibraryError(
            f"{folder} has no libturbojpeg.so; remove the folder and try again"
        )
    return found.parent


def _describe(folder: pathlib.Path, descriptions: pathlib.Path) -> None:
    """Write pkg-config files: Debian's own refer to another root."""
    made = descriptions.with_suffix(".new")
    made.mkdir(exist_ok=True)
    libraries, headers = _libraries(folder), _headers(folder)
    for name, include, link in (
        ("opencv4", headers, "-lopencv_imgproc -lopencv_core"),
        ("libturbojpeg", headers.parent, "-lturbojpeg"),
    ):
        lines = [f"Name: {name}", "Description: unpacked for FFCV", "Version: 0"]
        lines += [f"Cflags: -I{include}", f"Libs: -L{libraries} {link}", ""]
        (made / f"{name}.pc").write_text("\n".join(lines))
    # Last, and in one step: the folder marks everything as unpacked.
    made.replace(descriptions)
