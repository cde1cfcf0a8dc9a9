"""Every golden page, read by a decoder written from the specification alone."""

from __future__ import annotations

import importlib
import re

import pytest

from spec import golden
from spec.wire import RefusedError

CODECS = ["camera", "depth", "pco", "predict", "raw", "text", "vector", "zstd"]
FILES = [path for path in sorted(golden.FOLDER.glob("*.txt")) if path.stem.split("-")[0] in CODECS]


def decode(run, page):
    codec = importlib.import_module(f"spec.{run.name}")
    return codec.decode(run.frame, run.params, run.shared, page)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_values_are_those_of_the_golden_file_bit_for_bit(path):
    run = golden.read(path)
    decoded = [decode(run, page) for page in run.pages]
    if run.frame.dtype is None:
        assert [text for page in decoded for text in page] == run.texts
        return
    for page, values in zip(run.pages, decoded, strict=True):
        assert values.dtype == run.frame.dtype
        assert values.shape == (page.frames, *run.frame.shape)
    assert b"".join(values.tobytes() for values in decoded) == run.values


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_truncated_page_and_a_page_with_extra_bytes_are_refused(path):
    run = golden.read(path)
    page = run.pages[-1]
    cuts = {1, len(page.bytes) // 2, len(page.bytes) - 1}
    for wrong in [*(page.bytes[:cut] for cut in cuts if cut < len(page.bytes)), page.bytes + b"\0"]:
        with pytest.raises(RefusedError):
            decode(run, golden.Page(page.frames, wrong))


def test_every_lossless_codec_of_the_specification_is_read():
    page = (golden.FOLDER.parents[3] / "spec/codecs/README.md").read_text("utf-8")
    # Each row: name, what it is for, kinds, guarantee, … Lossy images are decoded by libraries of their own.
    # The pages of `external` are another codec's.
    rows = re.findall(r"^\| \[`(\w+)`\]\([^|]*\|[^|]*\|[^|]*\|([^|]*)\|", page, re.MULTILINE)
    lossless = {name for name, guarantee in rows if "lossless" in guarantee}
    assert lossless - {"external"} == set(CODECS)
    assert {path.stem.split("-")[0] for path in FILES} == set(CODECS)
