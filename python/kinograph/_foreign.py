"""Foreign codecs: classes that encode and decode frames, beside the codecs of the format.

    kinograph.register_codec(codec)     in this process
    KINOGRAPH_CODECS=package.module:Class    in every process that has the variable, the ``kinograph`` command too
    an entry point of the group ``kinograph.codecs``, named after the codec    wherever the package is installed
    Pillow: webp-1 to webp-100, webp-lossless, avif-1 to avif-100    wherever Pillow is installed

A dataset holds the name of a codec and never code: a codec is looked up in these four places, in this order. Nothing is
imported before a codec is needed. ``docs/guide/foreign-codecs.md`` has an example.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.metadata
import os
import warnings
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from kinograph import _core, _pillow
from kinograph._errors import InvalidArgumentError, KinographWarning

_VARIABLE = "KINOGRAPH_CODECS"
_GROUP = "kinograph.codecs"

T = TypeVar("T")

# Threads of a loader must not call Python once the interpreter ends.
atexit.register(_core.end_codecs)


class ForeignCodec(Protocol):
    """A codec of your own, for :func:`kinograph.register_codec`.

    ``encode`` gets the frames of a page: a read-only array of shape ``(frames, *shape)``. ``decode`` gets the bytes that
    it returned, and must return an array of the same dtype and shape; what else it needs must be in the bytes. Both may
    be called by several threads at once.

    Optional attributes:

    - ``page_frames``: the most frames of a page, 1 by default. A random frame costs decoding its whole page.
    - ``lossless``: if it is true, every page is compared bit for bit when it is packed, and packing stops if one differs.
    - ``version``: what encodes, such as ``"torch 2.8"``; it is recorded with the stream.
    - ``suits(dtype, shape)``: whether it can store frames such as ``("uint8", (84, 84, 3))``; all numeric ones by
      default.
    """

    @property
    def name(self) -> str:
        """Its name, 1 to 64 of ``a-z 0-9 . + -``: a dataset refers to it by this name alone."""

    def encode(self, frames: npt.NDArray[Any]) -> bytes:
        """Encode the frames of a page."""

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """Decode the bytes of a page."""


def register_codec(codec: ForeignCodec) -> str:
    """Register a codec in this process, and return the codec string that a plan names it by.

    >>> class Reversed:
    ...     name = "reversed"
    ...     def encode(self, frames):
    ...         return frames[..., ::-1].tobytes()
    ...     def decode(self, data):
    ...         return np.frombuffer(data, np.float64).reshape(-1, 7)[:, ::-1]
    >>> kinograph.register_codec(Reversed())
    'external:name=reversed'
    >>> plan = {"stream": [{"match": "actions", "codec": "external:name=reversed"}]}
    >>> with kinograph.Writer("reversed.kino", plan=plan) as writer:
    ...     writer.add_episode({"actions": np.ones((50, 7))}, rate_hz=20.0)
    >>> kinograph.open("reversed.kino")[0]["actions"][:2].sum()
    np.float64(14.0)

    ``kinograph bench codecs`` and :func:`kinograph.plan` compare registered codecs with the others. Whoever reads the
    dataset must register the codec too, in every process: without it, its frames are refused by name, and everything
    else is read.

    :param codec: See :class:`kinograph.ForeignCodec`. A codec of the same name is replaced
    """
    return _core.register_codec(Adapter(codec))


class Adapter:
    """A codec as the core calls it: what the class returns is checked, and its exceptions become one sentence."""

    def __init__(self, codec: ForeignCodec) -> None:
        self._codec = codec
        if isinstance(codec, type):
            raise InvalidArgumentError(
                f"{codec.__name__} is a class; register an object of it: {codec.__name__}()"
            )
        for method in ("encode", "decode"):
            if not callable(getattr(codec, method, None)):
                raise InvalidArgumentError(f"{codec!r} is not a codec: it has no method `{method}`")
        name = getattr(codec, "name", None)
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"{codec!r} is not a codec: its `name` is {name!r}, not a str"
            )
        self.name: str = name
        self.version: str | None = getattr(codec, "version", None)
        if self.version is not None and not isinstance(self.version, str):
            raise InvalidArgumentError(f"`version` of codec `{name}` must be a str")
        self.page_frames: int = getattr(codec, "page_frames", 1)
        if not isinstance(self.page_frames, int) or not 1 <= self.page_frames <= _MOST_FRAMES:
            raise InvalidArgumentError(
                f"`page_frames` of codec `{name}` must be from 1 to {_MOST_FRAMES}, "
                f"not {self.page_frames!r}"
            )
        self.lossless: bool = bool(getattr(codec, "lossless", False))

    def suits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        suits = getattr(self._codec, "suits", None)
        return suits is None or bool(_call("tell what it suits", lambda: suits(dtype, shape)))

    def encode(self, values: bytes, dtype: str, shape: tuple[int, ...]) -> bytes:
        frames = np.frombuffer(values, dtype).reshape(-1, *shape)
        data = _call("encode", lambda: self._codec.encode(frames))
        if isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise _WrongError(f"returned {type(data).__name__} from `encode`, not bytes")

    def decode(
        self, data: bytes, frames: int, dtype: str, shape: tuple[int, ...]
    ) -> npt.NDArray[np.uint8]:
        found = _call("decode", lambda: self._codec.decode(data))
        if not isinstance(found, np.ndarray):
            raise _WrongError(f"returned {type(found).__name__} from `decode`, not a numpy array")
        if found.dtype != np.dtype(dtype) or found.shape != (frames, *shape):
            raise _WrongError(
                f"returned {found.dtype} values of shape {found.shape} from `decode`, not {dtype} of "
                f"{(frames, *shape)}"
            )
        return np.ascontiguousarray(found).reshape(-1).view(np.uint8)


# The most frames of a page (spec/format.md).
_MOST_FRAMES = 65536


class _WrongError(Exception):
    """What a codec did; the core puts its name before the text."""


def _call(what: str, function: Callable[[], T]) -> T:
    try:
        return function()
    except Exception as error:
        raise _WrongError(f"failed to {what}: {type(error).__name__}: {error}") from error


def find(name: str) -> Adapter | None:
    """Find a codec that is not registered; the core calls it."""
    listed = _listed()
    if name in listed:
        return listed[name]
    for point in _entry_points():
        if point.name == name:
            return _load(f"the entry point `{point.value}`", point.load)
    codec = _pillow.find(name)
    return None if codec is None else Adapter(codec)


def names() -> list[str]:
    """List the codecs to compare; the core calls it. A codec that cannot be loaded is a warning, not an error."""
    found = [point.name for point in _entry_points()] + _pillow.names()
    try:
        found += _listed()
    except Exception as error:
        warnings.warn(f"codecs are missing: {error}", KinographWarning, stacklevel=2)
    return found


@functools.cache
def _entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=_GROUP))


@functools.cache
def _listed() -> dict[str, Adapter]:
    """Load the classes that the variable names."""
    found = {}
    for path in filter(None, os.environ.get(_VARIABLE, "").split(",")):
        module, _, name = path.strip().partition(":")

        def load(module: str = module, name: str = name) -> object:
            return getattr(importlib.import_module(module), name)

        adapter = _load(f"{path.strip()}, which {_VARIABLE} names,", load)
        found[adapter.name] = adapter
    return found


def _load(what: str, load: Callable[[], object]) -> Adapter:
    try:
        made = load()
        codec = made() if isinstance(made, type) else made
        return Adapter(cast("ForeignCodec", codec))
    except Exception as error:
        text = f"cannot be loaded: {what} failed: {type(error).__name__}: {error}"
        raise _WrongError(text) from error
