"""JPEG decoded on the GPU that trains: where nvJPEG is, how much memory images may take there, and what was done.

kino-read ──► JPEG files ──► kino-send: nvJPEG ──► resize ──► image memory on the GPU ──► crop, layout, dtype ──► batch
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
from typing import Any, Literal, TypeAlias

#: What decodes JPEG images of batches that go to a CUDA device.
Decode: TypeAlias = Literal["cpu", "gpu", "auto"]

# Images take at most this share of the memory that is free on the GPU when a loader starts, unless `memory` is given.
_FREE_SHARE = 4


@dataclasses.dataclass(frozen=True)
class GpuDecode:
    """What a loader decoded on the GPU so far.

    ``largest_difference`` is that between the pixels of CPU and GPU, of 255, in the first images; ``cpu_s`` and ``gpu_s`` are
    the seconds that one of them took each.
    """

    #: "hardware" (the GPU's JPEG engine) or "default" (kernels, and the CPU for Huffman codes).
    engine: str
    #: The version of nvJPEG.
    nvjpeg: str
    #: The share of JPEG images that the GPU decodes; what is left, the CPU decodes.
    share: float
    #: Images that the GPU decoded, that nvJPEG refused (the CPU decoded them), and that the CPU decoded because of the share.
    decoded: int
    refused: int
    uploaded: int
    #: Seconds spent in nvJPEG.
    decode_s: float
    largest_difference: int | None
    cpu_s: float | None
    gpu_s: float | None
    #: GPU memory of decoded images, now and at most.
    bytes: int
    peak_bytes: int

    @classmethod
    def of(cls, report: str | None) -> GpuDecode | None:
        """Read the core's report; `None` if the GPU decodes nothing."""
        return None if report is None else cls(**json.loads(report))


def nvjpeg_folders() -> list[str]:
    """Return where NVIDIA's packages on PyPI put nvJPEG."""
    found = importlib.util.find_spec("nvidia")
    places = [] if found is None else list(found.submodule_search_locations or [])
    return [str(path) for place in places for path in sorted(pathlib.Path(place).glob("*/lib"))]


def most_memory(torch: Any, device: Any) -> int:  # noqa: ANN401 (torch, which is optional)
    """Return how much GPU memory decoded images may take if the user does not say it."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) // _FREE_SHARE
