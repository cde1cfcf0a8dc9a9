"""The compared systems, one module each; `find` returns them by name."""

import importlib

from systems.base import System

# Name in the tables → module and its variant.
SYSTEMS = {
    "kinograph lossless, a tenth": ("ours", "lossless 0.1"),
    "kinograph lossless, all": ("ours", "lossless 1"),
    "kinograph lossless groups, a tenth": ("ours", "groups 0.1"),
    "kinograph lossless groups, all": ("ours", "groups 1"),
    "kinograph JPEG 95, a tenth": ("ours", "jpeg 0.1"),
    "kinograph JPEG 95, a twentieth": ("ours", "jpeg 0.045"),
    "kinograph lossless, a twentieth": ("ours", "lossless 0.045"),
    "kinograph JPEG 95, all": ("ours", "jpeg 1"),
    "kinograph AV1, a quarter": ("ours", "av1 0.25"),
    "kinograph AV1, all": ("ours", "av1 1"),
    "kinograph JPEG 95, a quarter": ("ours", "jpeg 0.25"),
    "kinograph lossless, a quarter": ("ours", "lossless 0.25"),
    "np.memmap, threads": ("memmap", "threads"),
    "np.memmap, DataLoader": ("memmap", "workers"),
    "JPEG store, threads": ("jpeg_store", "threads"),
    "JPEG store, DataLoader": ("jpeg_store", "workers"),
    "WebDataset": ("webdataset_tar", ""),
    "DALI": ("dali", ""),
    "SPDL": ("spdl", ""),
    "MDS": ("mds", ""),
    "LitData": ("litdata_items", ""),
    "Lance": ("lance_rows", ""),
    "Grain": ("grain_rows", ""),
    "zarr lz4": ("zarr_frames", ""),
    "robomimic, low_dim cache": ("robomimic_file", "low_dim"),
    "robomimic, no cache": ("robomimic_file", "none"),
    "robomimic, all cached": ("robomimic_file", "all"),
    "LeRobot AV1": ("lerobot_video", "libsvtav1"),
    "LeRobot H.264": ("lerobot_video", "h264"),
    "FFCV JPEG, frames": ("ffcv_rows", "jpeg frames"),
    "FFCV raw, windows": ("ffcv_rows", "raw windows"),
    "robodm H.264": ("robodm_file", "libx264"),
    "h5py (ACT)": ("act_file", ""),
}


def find(name: str) -> System:
    """Return a system by its name."""
    module, variant = SYSTEMS[name]
    made: System = importlib.import_module(f"systems.{module}").Made(name, variant)
    return made
