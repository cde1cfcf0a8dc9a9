"""JPEG and video decoded on the GPU that trains: where nvJPEG is, how much memory images may take there, and what was done.

kino-read ──► JPEG files ──► kino-send: nvJPEG ─┬─► resize ──► image memory on the GPU ──► crop, layout, dtype ──► batch
          └─► packets ─────► kino-send: NVDEC ──┘
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
from typing import Any, Literal, TypeAlias

#: What decodes JPEG images and video of batches that go to a CUDA device.
Decode: TypeAlias = Literal["cpu", "gpu", "auto"]

# Images take at most this share of the memory that is free on the GPU when a loader starts, unless `memory` is given.
_FREE_SHARE = 4


@dataclasses.dataclass(frozen=True)
class GpuVideo:
    """What a loader did with video on the GPU so far.

    ``cpu_s`` and ``gpu_s`` are the seconds that a frame took one core of the CPU, and the GPU with all its engines. If the pixels of
    the first page differed from the CPU's (``largest_difference`` above 0), the CPU decodes all such video.
    """

    #: Engines of the GPU that decode it; 0 before the first page.
    engines: int
    #: Frames that the GPU decoded, and that it refused: the CPU decoded them.
    decoded: int
    refused: int
    #: Seconds spent with NVDEC.
    decode_s: float
    largest_difference: int | None
    cpu_s: float | None
    gpu_s: float | None
    #: Open decoders, and about how much GPU memory they take.
    decoders: int
    decoder_bytes: int
    #: Why frames were refused, or all of a kind, if some were.
    note: str | None


@dataclasses.dataclass(frozen=True)
class GpuDecode:
    """What a loader decoded on the GPU so far.

    ``largest_difference is that between the pixels of CPU and GPU, of 255, in the first images; ``cpu_s`` and ``gpu_s`` are
    the seconds that one of them took each.
    """

    #: "hardware" (the GPU's JPEG engine) or "default" (kernels, and the CPU for Huffman codes); `None` without JPEG.
    engine: str | None
    #: The version of nvJPEG; `None` without JPEG.
    nvjpeg: str | None
    #: The share of JPEG images and pages of video that the GPU decodes; what is left, the CPU decodes.
    share: float
    #: JPEG images that the GPU decoded, that nvJPEG refused (the CPU decoded them), and images that the CPU decoded because of the share.
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
    #: Video; `None` if no requested stream is video that GPUs decode.
    video: GpuVideo | None = None

    @classmethod
    def of(cls, report: str | None) -> GpuDecode | None:
        """Read the core's report; `None` if the GPU decodes nothing."""
        if report is None:
            return None
        fields = json.loads(report)
        video = fields.pop("video")
        return cls(**fields, video=None if video is None else GpuVideo(**video))


def nvjpeg_folders() -> list[str]:
    """Return where NVIDIA's packages on PyPI put nvJPEG."""
    found = importlib.util.find_spec("nvidia")
    places = [] if found is None else list(found.submodule_search_locations or [])
    return [str(path) for place in places for path in sorted(pathlib.Path(place).glob("*/lib"))]


def most_memory(torch: Any, device: Any) -> int:  # noqa: ANN401 (torch, which is optional)
    """Return how much GPU memory decoded images may take if the user does not say it."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) // _FREE_SHARE
