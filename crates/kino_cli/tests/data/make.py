"""Write other_demo.hdf5: the first twenty steps of a demonstration of the sample recording, with another id.

Run from the repository root with h5py installed: `python crates/kino_cli/tests/data/make.py`.
"""

import pathlib

import h5py

ROOT = pathlib.Path(__file__).resolve().parents[4]
STEPS = 20

with (
    h5py.File(ROOT / "tests/data/lift_3demos.hdf5") as source,
    h5py.File(pathlib.Path(__file__).with_name("other_demo.hdf5"), "w") as target,
):
    data = target.create_group("data")
    data.attrs["env_args"] = source["data"].attrs["env_args"]
    data.attrs["total"] = STEPS
    demo = data.create_group("demo_7")
    demo.attrs["num_samples"] = STEPS

    def copy(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            chunks = (1, *item.shape[1:]) if item.ndim == 4 else None
            gzip = "gzip" if item.ndim == 4 else None
            demo.create_dataset(name, data=item[:STEPS], chunks=chunks, compression=gzip)

    source["data/demo_0"].visititems(copy)
