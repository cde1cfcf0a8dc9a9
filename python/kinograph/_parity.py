"""Live frames like the training frames: the same resize, codec and crop, on a robot.

    parity = ds.parity(images=kinograph.Images(size=(224, 224)))     or loader.parity()
    parity.save("parity.json")                                       beside the checkpoint
    parity = kinograph.Parity("parity.json")                         on the robot, without the dataset
    parity({"wrist": frame})["wrist"]                                what the loader would have delivered

``docs/guide/deploy.md`` says when this helps a policy, and when it does not.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import to_list
from kinograph._errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from kinograph._loader_options import Images, to_images

if TYPE_CHECKING:
    from typing_extensions import Self

    from kinograph._dataset import Dataset
    from kinograph._loader import BaseLoader

Fidelity: TypeAlias = Literal["exact", "estimated", "approximate", "unchanged"]


@dataclasses.dataclass(frozen=True)
class StreamParity:
    """The transform of the frames of one key: call it with a frame.

    ``fidelity`` says how close a live frame comes to the training frame that it would have become: ``"exact"`` bit for bit,
    ``"estimated"`` if another encoder made the stored files and its settings are estimated, ``"approximate"`` if the codec used
    neighbouring frames too, ``"unchanged"`` if the loss cannot be repeated on one frame and is left out. ``notes`` say why.
    """

    key: str
    fidelity: Fidelity
    notes: tuple[str, ...]
    _core: _core.Parity = dataclasses.field(repr=False, compare=False)

    def __call__(self, frame: npt.ArrayLike) -> npt.NDArray[Any]:
        """Pass a frame through, or a stack of frames along leading axes, each on its own."""
        return _pass(self._core, self.key, frame)

    def __str__(self) -> str:
        return self._core.describe(self.key)[0]


class Parity:
    """A transform of live frames that does what was done to the training frames.

    It repeats the plan's ``resize``, the lossy codec, and the loader's own resize, crop, layout and dtype; a random crop
    becomes a crop of the centre. Frames are as recorded: ``uint8`` arrays of height, width, channels.

    >>> parity = ds.parity(images=kinograph.Images(crop=(28, 20)))
    >>> frame = ds[0]["obs/agentview_image"][0]
    >>> parity({"obs/agentview_image": frame})["obs/agentview_image"].shape
    (28, 20, 3)
    >>> parity["obs/agentview_image"](frame).shape
    (28, 20, 3)
    >>> parity["obs/agentview_image"].fidelity
    'exact'

    A saved parity needs no dataset:

    >>> parity.save("parity.json")
    >>> parity = kinograph.Parity("parity.json")

    Streams without loss have nothing to repeat; the text of a parity says what it does to each key:

    >>> print(parity)  # doctest: +ELLIPSIS
    Parity with lift.kino, version 1
      obs/agentview_image: uint8[32, 24, 3] → lossless, nothing to repeat → centre crop 28 × 20 → uint8[28, 20, 3]; exact

    It is not a general cure: compare what the policy does on raw frames and on parity frames first.
    """

    __slots__ = ("_core",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise NotFoundError(f"there is no parity file {os.fspath(path)}") from None
        except IsADirectoryError:
            raise InvalidArgumentError(
                f"{os.fspath(path)} is a folder, not a parity file; `kinograph.open({os.fspath(path)!r}).parity()` makes the parity of a dataset"
            ) from None
        except UnicodeDecodeError:
            raise CorruptDataError(
                f"{os.fspath(path)}: not a parity file, which is text; write it again with `parity.save(path)`"
            ) from None
        except OSError as error:
            raise StorageError(
                error.errno, f"cannot read the parity file {os.fspath(path)}: {error.strerror}"
            ) from error
        try:
            self._core = _core.Parity.from_json(text)
        except (CorruptDataError, UnsupportedError) as error:
            raise type(error)(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote; the same as ``kinograph.Parity(path)``."""
        return cls(path)

    @classmethod
    def _of(cls, core: _core.Parity) -> Self:
        parity = cls.__new__(cls)
        parity._core = core
        return parity

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a small JSON file."""
        try:
            pathlib.Path(path).write_text(self._core.to_json() + "\n", encoding="utf-8")
        except OSError as error:
            raise StorageError(
                error.errno, f"cannot write the parity file {os.fspath(path)}: {error.strerror}"
            ) from error

    @property
    def has_reference(self) -> bool:
        """Whether it knows what training frames look like, as :func:`kinograph.check_deployment` needs."""
        return json.loads(self._core.to_json()).get("reference") is not None

    def keys(self) -> list[str]:
        """List the keys it has a transform for."""
        return self._core.keys()

    def __call__(self, frames: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
        """Pass a frame of each given key through."""
        if not isinstance(frames, Mapping):
            raise InvalidArgumentError(
                f"give a dict of frames by key, such as {{{self.keys()[0]!r}: frame}}, or use parity[key](frame)"
                if self.keys()
                else "this parity has no keys"
            )
        return {key: _pass(self._core, key, frame) for key, frame in frames.items()}

    def __getitem__(self, key: str) -> StreamParity:
        """Return the transform of one key."""
        _, fidelity, notes = self._core.describe(key)
        return StreamParity(key, cast("Fidelity", fidelity), tuple(notes), self._core)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        found = json.loads(self._core.to_json())
        name, version, _ = found["dataset"]
        lines = [_core.escape(f"Parity with {name}, version {version}")]
        for key in self.keys():
            text, _, notes = self._core.describe(key)
            lines += [f"  {text}", *(f"    {note}" for note in notes)]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_json, (self._core.to_json(),)


def of_dataset(
    dataset: Dataset,
    streams: Sequence[str] | None,
    images: Images | Mapping[str, Any] | None,
    *,
    reference: bool,
) -> Parity:
    """Make the parity of streams as they are stored, with the images that a loader would make of them."""
    if streams is None:
        names = [name for name, one in dataset.streams.items() if one.kind in ("image", "depth")]
        if not names:
            raise InvalidArgumentError(
                f"{dataset!r} has no cameras; name the streams that live frames come for"
            )
    else:
        names = [str(name) for name in to_list("streams", streams, "names")]
    options = {"images": to_images(images)._to_json()}
    return make(dataset, [(name, name) for name in names], options, reference=reference)


def of_loader(loader: BaseLoader[Any, Any], *, reference: bool) -> Parity:
    """Make the parity of the keys of a loader's batches."""
    sources = loader._order.sources
    if len({source.samples.dataset.id for source in sources}) > 1:
        raise InvalidArgumentError(
            f"this loader mixes {len(sources)} datasets, which may be stored differently; make a parity of the dataset that the "
            "robot is in: `ds.parity(images=...)`"
        )
    # With variants by epoch: those that training ends with.
    samples = sources[0]._packings()[-1]
    known = samples.dataset.streams
    windows = samples.request["windows"]
    keys = [
        (window["key"], window["stream"])
        for window in windows
        if known[window["stream"]].kind != "text"
    ]
    options = {name: loader._options[name] for name in ("images", "scales", "dtype")}
    rows = [int(row) for row in samples._core.episodes()]
    return make(samples.dataset, keys, options, reference=reference, rows=rows)


def make(
    dataset: Dataset,
    keys: list[tuple[str, str]],
    options: dict[str, Any],
    *,
    reference: bool,
    rows: list[int] | None = None,
) -> Parity:
    """Make a parity, and look at training frames if asked to."""
    core = _core.Parity(dataset._core, keys, json.dumps(options))
    core.check()
    return Parity._of(core.with_reference(dataset._core, rows) if reference else core)


def _from_json(text: str) -> Parity:
    return Parity._of(_core.Parity.from_json(text))


def _pass(core: _core.Parity, key: str, frame: npt.ArrayLike) -> npt.NDArray[Any]:
    dtype, stored = core.stored(key)
    array = np.asarray(frame)
    if array.dtype.kind in "OSU":
        raise InvalidArgumentError(
            f"`{key}`: a live frame is {type(frame).__name__}; give an array of {dtype} of shape {stored}"
        )
    if array.dtype != np.dtype(dtype):
        raise InvalidArgumentError(
            f"`{key}`: live frames are {array.dtype}, but training frames are {dtype}; pass them as the camera delivers them, before "
            "they are scaled or normalised"
        )
    leading = max(0, array.ndim - len(stored))
    lead, shape = array.shape[:leading], array.shape[leading:]
    packed = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    name, delivered, values = core.apply(key, list(shape), packed)
    if name == "bfloat16":
        # numpy has no bfloat16: the same values as float32.
        found = (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        found = values.view(np.dtype(name))
    return found.reshape(*lead, *delivered)
