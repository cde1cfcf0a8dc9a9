"""The documentation: its code runs, twice; its chart matches the measurements; the site has no broken links."""

import importlib.util
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from optional import optional

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]
# A block of Python or of shell commands; a comment line before it gives the reason why it cannot be run here.
BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```(python|sh)\n(.*?)^```", re.M | re.S)
# The pages whose shell commands need only `demos.hdf5`.
WITH_COMMANDS = ("README.md", "docs/guide/getting-started.md")


def blocks(page):
    """Return the language and the text of every block to run."""
    found = BLOCK.findall((ROOT / page).read_text("utf-8"))
    return [(language, text) for skipped, language, text in found if not skipped]


def has_python(page):
    return any(language == "python" for language, _ in blocks(page))


def run_commands(text):
    for line in text.splitlines():
        command = shlex.split(line, comments=True)
        if command[:1] == ["kinograph"]:
            subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)


def run_python(text, page, names):
    if "torch" in text:
        torch = optional("torch")
        if not torch.cuda.is_available():
            text = text.replace('device="cuda"', 'device="cpu"')
    exec(compile(text, page, "exec"), names)


@pytest.fixture(scope="module")
def lift_kino(tmp_path_factory):
    path = tmp_path_factory.mktemp("docs") / "lift.kino"
    kinograph.pack(ROOT / "tests/data/lift_3demos.hdf5", path)
    return path


@pytest.mark.parametrize("page", list(filter(has_python, PAGES)))
def test_the_code_of_a_page_runs_from_top_to_bottom_twice(page, lift_kino, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests/data/lift_3demos.hdf5", tmp_path / "demos.hdf5")
    for is_first in (True, False):
        names = {"kinograph": kinograph, "np": np, "ds": kinograph.open(lift_kino)}
        for language, text in blocks(page):
            if language == "python":
                run_python(text, page, names)
            elif is_first and page in WITH_COMMANDS:
                # A second `kinograph pack` to the same target is refused by design.
                run_commands(text)


def test_every_block_that_is_not_run_gives_a_reason():
    reasons = [
        reason
        for page in PAGES
        for reason, _, _ in BLOCK.findall((ROOT / page).read_text("utf-8"))
        if reason
    ]
    assert len(reasons) == 13


def drawn(folder: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Give a committed chart, and what its script draws of the committed measurements."""
    monkeypatch.syspath_prepend(str(ROOT / "bench" / folder))
    spec = importlib.util.spec_from_file_location("chart", ROOT / "bench" / folder / "chart.py")
    chart = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chart)
    figures = [chart.medians()] if hasattr(chart, "medians") else []
    return chart.CHART.read_text("utf-8"), chart.chart(*figures)


@pytest.mark.parametrize("folder", ["policies", "convergence"])
def test_a_chart_is_drawn_from_the_committed_measurements(folder, monkeypatch):
    committed, again = drawn(folder, monkeypatch)
    assert committed == again


def test_the_site_builds_without_broken_links(tmp_path):
    for name in ("mkdocs", "material", "mkdocstrings"):
        optional(name)
    command = [sys.executable, ROOT / "scripts/docs.py", "--site-dir", tmp_path]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "index.html").exists()
    reference = (tmp_path / "docs/reference/python/torch/index.html").read_text("utf-8")
    assert 'id="kinograph.torch.Loader.state_dict"' in reference


def test_the_example_of_samples_runs_twice():
    for _ in range(2):
        answer = subprocess.run(
            [sys.executable, ROOT / "examples/samples.py"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert "the same 12 batches" in answer.stdout
