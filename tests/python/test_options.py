"""Every option of every loader is in its signature, typed and documented, and is the one that the core declares."""

import dataclasses
import importlib
import inspect
import json
import pathlib
import re

import numpy as np
import pytest
from optional import optional

import kinograph
import kinograph.numpy
from kinograph import _core

OPTIONS = {row["name"]: row for row in json.loads(_core.loader_options())}
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "loader.md"

# What a sample is, and where batches go: not options of the core's loader.
REQUEST = {
    "dataset",
    "windows",
    "delta_timestamps",
    "seq_length",
    "frame_stack",
    "anchor",
    "keys",
    "include",
    "masks",
    "variants",
    "split",
    "episodes",
    "filter",
    "device",
}


@pytest.fixture(params=["numpy", "torch", "jax"])
def loader(request):
    optional(request.param)
    return importlib.import_module(f"kinograph.{request.param}").Loader


def params(doc):
    """The `:param name: text` lines of a docstring, with their continuation lines."""
    found = re.findall(r":param (\w+): (.*?)(?=\n\s*:param|\n\s*\n|$)", doc, flags=re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


def test_signatures_have_every_option_of_the_core_and_no_other(loader):
    names = set(inspect.signature(loader).parameters)
    groups = {name.split(".")[0] for name in OPTIONS}
    assert names - REQUEST == groups
    assert names >= REQUEST


def test_no_option_hides_behind_keywords_or_any(loader):
    for one in inspect.signature(loader).parameters.values():
        assert one.kind is not one.VAR_KEYWORD
        assert one.annotation not in (one.empty, "Any"), one.name
        assert "object" not in one.annotation, one.name


def test_docstrings_say_what_the_core_says(loader):
    documented = params(loader.__init__.__doc__)
    assert documented.keys() == inspect.signature(loader).parameters.keys()
    for name, row in OPTIONS.items():
        if "." not in name:
            assert documented[name] == row["help"], name
    documented = params(kinograph.Images.__doc__)
    for name, row in OPTIONS.items():
        group, _, option = name.rpartition(".")
        if group == "images":
            assert documented[option] == row["help"], name


def page_rows():
    """Return the rows of the option tables of the reference, by name; those of `kinograph.Images` with their group."""
    rows = {}
    tables = re.finditer(
        r"^(.*)\n\n\| option \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE.read_text("utf-8"), re.MULTILINE
    )
    for table in tables:
        group = "images." if table[1] == "Arguments of `kinograph.Images`:" else ""
        for row in table[2].splitlines():
            for name in re.findall(r"`(\w+)`", row.split("|")[1]):
                rows[group + name] = row
    return rows


def test_the_reference_page_has_every_option_with_all_its_choices_and_no_other():
    rows = page_rows()
    assert rows.keys() == OPTIONS.keys() | (REQUEST - {"dataset"}) | {"images"}
    for name, option in OPTIONS.items():
        if isinstance(option["form"], dict):
            for choice in option["form"]["choice"]:
                assert f'`"{choice}"`' in rows[name], (name, choice)


def test_the_reference_page_has_the_default_of_every_choice_and_flag():
    rows = page_rows()
    for name, option in OPTIONS.items():
        default = option["default"]
        if isinstance(option["form"], dict) and default != "None":
            default = f'"{default}"'
        elif default not in ("True", "False", "None", "no crop", "as stored", "no limit"):
            continue
        assert default in rows[name].split("|")[-2], name


def test_image_options_are_those_of_the_core_with_its_defaults():
    fields = {field.name: field.default for field in dataclasses.fields(kinograph.Images)}
    rows = {
        name.removeprefix("images."): row
        for name, row in OPTIONS.items()
        if name.startswith("images.")
    }
    assert fields.keys() == rows.keys()
    for name, default in fields.items():
        if default is not None:
            assert str(default) == rows[name]["default"], name


def test_defaults_of_choices_are_those_of_the_core(loader):
    for name, one in inspect.signature(loader).parameters.items():
        row = OPTIONS.get(name)
        if row is not None and isinstance(row["form"], dict) and one.default is not None:
            assert one.default == row["default"], name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("num_workers", "`threads=`"),
        ("pin_memory", 'device="cuda"'),
        ("prefetch_factor", "`prefetch=`"),
        ("collate_fn", "`transform=`"),
        ("image_transforms", "kinograph.Images"),
        ("image_size", "kinograph.Images"),
        ("pool", "kinograph.Shuffle"),
        ("batchsize", "did you mean `batch_size`"),
        ("xyz", "there are dataset, windows"),
    ],
)
def test_an_option_of_another_loader_says_what_to_use(lift, loader, name, says):
    with pytest.raises(TypeError, match=rf"has no option `{name}`.*{re.escape(says)}"):
        loader(lift, windows={"actions": [0]}, batch_size=8, **{name: 1})


def test_an_unknown_image_option_is_refused_with_the_right_one(lift):
    with pytest.raises(TypeError, match="Images has no option `sizes`; did you mean `size`"):
        kinograph.numpy.Loader(
            lift, windows={"actions": [0]}, batch_size=8, images={"sizes": (4, 4)}
        )


@pytest.mark.parametrize("memory", ["512", "GB", -1, 0, 1.5, "1XB"])
def test_a_size_without_a_unit_is_refused(lift, memory):
    with pytest.raises(kinograph.InvalidArgumentError, match="memory"):
        kinograph.numpy.Loader(lift, windows={"actions": [0]}, batch_size=8, memory=memory)


@pytest.mark.parametrize("dtype", ["float32", "np.float32", "torch.float32"])
def test_dtypes_of_the_frameworks_are_understood(dtype):
    if dtype.startswith("torch"):
        torch = pytest.importorskip("torch")
        value = torch.float32
    else:
        value = np.float32 if dtype.startswith("np") else dtype
    assert kinograph.Images(dtype=value).dtype == "float32"


def test_the_same_sizes_mean_the_same_everywhere():
    assert _core.parse_bytes("512MB") == 512_000_000
    assert _core.parse_bytes("1.5GiB") == 3 << 29
    assert _core.show_bytes(512_000_000) == "512 MB"
