"""A CUDA driver without a GPU (``crates/kino_cuda/tests/fake_cuda.c``), so that torch's loaders can be tested with one.

Device memory is the host's, so tensors "on the GPU" are read as CPU tensors. Copies are done as late as the driver may.
"""

import ctypes
import io
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

import kinograph.torch

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "crates" / "kino_cuda" / "tests"
# DLPack's number of host memory.
DLPACK_CPU = 1


class FakeCuda:
    """The driver's own functions for tests."""

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))
        self._library.fake_count.restype = ctypes.c_long
        self._library.fake_stream.restype = ctypes.c_void_p

    def count(self, what):
        return self._library.fake_count(what.encode())

    def limit(self, size):
        """Let the device have this much memory; all of it if ``None``."""
        self._library.fake_limit(ctypes.c_size_t(2**64 - 1 if size is None else size))

    def limit_registered(self, size):
        self._library.fake_register_limit(ctypes.c_size_t(2**64 - 1 if size is None else size))

    def stream(self):
        return self._library.fake_stream()

    def read(self, stream, tensor):
        """Read a tensor in a stream, as a kernel would; the sum is there after `synchronize`."""
        found = ctypes.c_uint64()
        self._library.fake_read(
            ctypes.c_void_p(stream),
            ctypes.c_uint64(tensor.data_ptr()),
            ctypes.c_size_t(tensor.nbytes),
            ctypes.byref(found),
        )
        return found

    def synchronize(self):
        self._library.fake_synchronize()


def sum_of(array):
    """Return what `FakeCuda.read` makes of an array."""
    found = 0
    for byte in array.tobytes():
        found = (found * 31 + byte) % 2**64
    return found


class FakeNvjpeg:
    """An nvJPEG without a GPU, which writes what Pillow decodes when the stream comes to it."""

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))
        self._library.fake_jpeg_decoded.restype = ctypes.c_long
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_uint8),
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.POINTER(ctypes.c_uint8),
        )
        #: Files for which this is true are refused.
        self.refuses = lambda file: False
        # Kept: the library calls it.
        self._decode = kind(self._decode_file)
        self._library.fake_jpeg_decode_with(self._decode)

    def decoded(self):
        return self._library.fake_jpeg_decoded()

    def _decode_file(self, start, length, size, pixels):
        file = ctypes.string_at(start, length)
        if self.refuses(file):
            return 4
        image = np.asarray(Image.open(io.BytesIO(file)))
        size[0], size[1] = image.shape[:2]
        if pixels:
            ctypes.memmove(pixels, image.tobytes(), image.nbytes)
        return 0


class FakeNvdec:
    """An NVDEC without a GPU; ``picture`` gives what is in a packet: height, width, time, whether it starts a group, and NV12."""

    def __init__(self, path, picture):
        self._library = ctypes.CDLL(str(path))
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_uint8),
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.POINTER(ctypes.c_uint8),
        )
        self._picture = picture
        # Kept: the library calls it.
        self._decode = kind(self._decode_packet)
        self._library.fake_video_decode_with(self._decode)

    def decoded(self):
        return self._library.fake_video_decoded()

    def misuse(self):
        return self._library.fake_video_misuse()

    def without(self, codec):
        self._library.fake_video_without(ctypes.c_long(codec))

    def _decode_packet(self, start, length, info, pixels):
        found = self._picture(ctypes.string_at(start, length))
        if found is None:
            return 1
        shown, picture = found
        info[0], info[1], info[2], info[3] = (int(number) for number in shown)
        if pixels:
            ctypes.memmove(pixels, picture, len(picture))
        return 0


def compile_fake(folder, name, *libraries):
    """Build a fake library."""
    path = folder / f"lib{name}.so"
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler; set CC")
    flags = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread"]
    subprocess.run(
        [compiler, *flags, "-o", path, SOURCES / f"{name}.c", *libraries],
        check=True,
    )
    return path


def install(monkeypatch, folder):
    """Make torch's loaders use a driver of this test's own."""
    path = compile_fake(folder, "fake_cuda")
    torch = kinograph.torch.torch
    monkeypatch.setenv("KINOGRAPH_CUDA_LIBRARY", str(path))
    monkeypatch.setattr(
        kinograph.torch,
        "_to_device",
        lambda device: torch.device("cpu" if device is None else "cuda:0"),
    )
    monkeypatch.setattr(kinograph.torch, "_DLPACK_CUDA", DLPACK_CPU)
    monkeypatch.setattr(kinograph.torch, "_stream_of", lambda _: lambda: 0)
    return FakeCuda(path)
