"""Builds the documentation site into site/: `python scripts/docs.py`, or `make docs`.

The repository's Markdown, and what it links to, is copied to target/docs in the same layout; mkdocs.yml turns that into pages:

    README.md, ARCHITECTURE.md, …  ─┐
    docs/**  spec/**               ─┼─► target/docs ─► mkdocs ─► site/
    examples/*.py, bench/results/* ─┘
    python/kinograph/*.py  ─► docstrings ─────────────┘

A broken link or an unknown anchor ends the build with an error. The tools are the extra `docs` of pyproject.toml; those that are missing are installed.
"""

import ast
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "target" / "docs"
SOURCES = [
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *("LICENSE-MIT", "LICENSE-APACHE", "deny.toml"),
    *("docs", "spec", "examples", "bench/results"),
]


def copy_pages() -> None:
    """Copy what git knows, or would add; never what was built."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    answer = subprocess.run(
        [*command, "--", *SOURCES], cwd=ROOT, check=True, capture_output=True, text=True
    )
    shutil.rmtree(PAGES, ignore_errors=True)
    for name in answer.stdout.splitlines():
        if (ROOT / name).exists():
            (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, PAGES / name)


def install_tools() -> None:
    """Install mkdocs and its plugins; not this package, whose docstrings are read and not imported."""
    if all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings")):
        return
    listed = re.search(r"^docs = (\[.*\])$", (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    if listed is None:
        sys.exit("error: pyproject.toml has no line `docs = [...]` among its optional dependencies")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *ast.literal_eval(listed[1])], check=True)


def main() -> int:
    """Copy, then build; arguments, such as `--site-dir DIR`, are mkdocs's."""
    install_tools()
    copy_pages()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    # The theme advertises its successor at every build.
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, env=quiet, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
