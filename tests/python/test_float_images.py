"""Float images of whole numbers, written and read by h5py: imported as uint8, exported as floats."""

import numpy as np
import pytest

import kinograph

h5py = pytest.importorskip("h5py")


def write_demo(path, images):
    """A file in robomimic's layout."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = '{"env_name": "Push", "env_kwargs": {"control_freq": 10}}'
        for number, demo in enumerate(images):
            group = data.create_group(f"demo_{number}")
            group.attrs["num_samples"] = len(demo)
            group["actions"] = np.zeros((len(demo), 2))
            group["obs/img"] = demo
            group["obs/img"].attrs["unit"] = "grey"
            group["obs/heights"] = np.ones((len(demo), 8, 8, 1), "float32")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("to", ["robomimic", "act"])
def test_a_dtype_comes_back_in_an_export(tmp_path, dtype, to):
    images = np.random.default_rng(0).integers(0, 256, (2, 9, 16, 20, 3)).astype(dtype)
    write_demo(tmp_path / "a.hdf5", images)
    packed = kinograph.pack(tmp_path / "a.hdf5", tmp_path / "a.kino")
    (note,) = packed.defects
    assert (note.action, note.place) == ("note", "stream `obs/img`")
    assert dtype in note.what
    ds = kinograph.open(tmp_path / "a.kino")
    assert ds.streams["obs/img"].kind == "image"
    assert ds[1]["obs/img"][:].dtype == np.uint8
    assert np.array_equal(ds[1]["obs/img"][:], images[1])
    assert ds[1]["obs/heights"][:].dtype == np.float32
    target = tmp_path / ("out.hdf5" if to == "robomimic" else "out")
    kinograph.export(ds, target, to=to, on_defect="keep")
    if to == "robomimic":
        with h5py.File(target) as file:
            found, attributes = (
                file["data/demo_1/obs/img"][:],
                dict(file["data/demo_1/obs/img"].attrs),
            )
    else:
        with h5py.File(target / "demo_1.hdf5") as file:
            data = file["observations/images/img"]
            found, attributes = data[:], dict(data.attrs)
    assert found.dtype == dtype
    assert np.array_equal(found, images[1])
    assert attributes == {"unit": "grey"}
    again = kinograph.pack(tmp_path / "a.hdf5", tmp_path / "kept.kino", keep_dtype=True)
    assert again.defects == []
    assert kinograph.open(tmp_path / "kept.kino")[0]["obs/img"][:].dtype == dtype


@pytest.mark.parametrize("odd", [0.5, -0.0, 255.0000001, 1e-300])
def test_one_other_value_keeps_the_floats(tmp_path, odd):
    images = np.zeros((2, 5, 16, 16, 1))
    images[-1, -1, -1, -1, -1] = odd
    write_demo(tmp_path / "a.hdf5", images)
    assert kinograph.pack(tmp_path / "a.hdf5", tmp_path / "a.kino").defects == []
    found = kinograph.open(tmp_path / "a.kino")[1]["obs/img"][:]
    assert found.dtype == np.float64
    assert found.tobytes() == images[1].tobytes()
