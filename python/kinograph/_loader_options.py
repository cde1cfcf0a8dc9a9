"""The options of a loader, from what a user writes to the JSON that the core reads.

What each option means, its default and its limits are the core's to say: ``kino_loader::OPTIONS`` and the structs it
describes. Here only Python's own types are checked, so that an error names the keyword that was written.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from kinograph._arguments import to_number, to_whole, to_word
from kinograph._augment import ColorJitter, RandomResizedCrop, to_flip
from kinograph._errors import InvalidArgumentError
from kinograph._stream import is_number

Layout: TypeAlias = Literal["hwc", "chw"]
ResizeMode: TypeAlias = Literal["exact", "fast"]
ImageDtype: TypeAlias = Literal["uint8", "float32", "float16", "bfloat16"]
OnError: TypeAlias = Literal["raise", "skip"]
VectorDtype: TypeAlias = Literal["float32"]
Subsampling: TypeAlias = Literal["420", "422", "444"]

# Height and width of all cameras, or by key.
Size: TypeAlias = "tuple[int, int] | Mapping[str, tuple[int, int]]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomJpeg:
    """Images that were compressed as JPEG and decoded again, in a random share of the samples.

    Like torchvision's ``RandomApply([JPEG(quality)], p)``, but before resize and crop, as a camera does it, and the same
    on any number of ranks and after a restart. For a policy that will see JPEG on the robot.

    >>> jpeg = kinograph.RandomJpeg(quality=(30, 95), p=0.5)
    >>> images = kinograph.Images(random_jpeg=jpeg, size=(16, 16))
    >>> loader = kinograph.numpy.Loader(ds, windows={"obs/agentview_image": [0]}, batch_size=8, images=images)
    >>> next(iter(loader))["obs/agentview_image"].shape
    (8, 1, 16, 16, 3)

    :param quality: The lowest and the highest quality, 1 to 100, each in between equally likely; or one quality
    :param p: The probability that the images of a sample are compressed
    :param subsampling: Chroma subsampling: 420 as cameras do, 422, or 444 for none
    :param before_resize: Compress images at their stored size; False compresses resized images, which is cheaper and takes
        less memory

    The quality is drawn for each sample and key: all frames of a window have the same.
    """

    quality: int | tuple[int, int]
    p: float = 0.5
    subsampling: Subsampling = "420"
    before_resize: bool = True

    def __post_init__(self) -> None:
        lowest, highest = self._qualities()
        if lowest > highest:
            raise InvalidArgumentError(
                f"random_jpeg: quality is {self.quality!r}; give (lowest, highest), such as ({highest}, {lowest})"
            )
        p = to_number("random_jpeg: p", self.p)
        if not 0 <= p <= 1:
            raise InvalidArgumentError(
                f"random_jpeg: p is {self.p!r}; give a probability from 0 to 1"
            )
        name = "random_jpeg: subsampling"
        # Pillow and ffmpeg write 4:2:0.
        plain = str(self.subsampling).replace(":", "")
        object.__setattr__(self, "subsampling", to_word(name, plain, get_args(Subsampling)))

    def _qualities(self) -> list[int]:
        quality = self.quality
        pair = (quality, quality) if is_number(quality) else quality
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidArgumentError(
                f"random_jpeg: quality is {pair!r}; give one quality, or (lowest, highest), such as (30, 95)"
            )
        return [to_whole("random_jpeg: quality", one, least=1, most=100) for one in pair]

    def _to_json(self) -> dict[str, Any]:
        return {
            "quality": self._qualities(),
            "p": float(self.p),
            "subsampling": self.subsampling,
            "before_resize": bool(self.before_resize),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """How a loader delivers images.

    >>> images = kinograph.Images(size=(16, 16), layout="chw", dtype="float32")
    >>> loader = kinograph.numpy.Loader(ds, windows={"obs/agentview_image": [0]}, batch_size=8, images=images)
    >>> next(iter(loader))["obs/agentview_image"].shape
    (8, 1, 3, 16, 16)

    :param size: Resize images to this height and width
    :param resize: How images are resized: from all stored pixels (exact), or JPEG decoded at a half, a quarter or an eighth of its
        size first, if that is enough (fast)
    :param crop: Crop images to this height and width, after resizing
    :param random_crop: Crop at a random place instead of the centre
    :param random_jpeg: Compress the images of random samples (half of them by default) as JPEG, at a random quality from this range,
        and decode them again
    :param random_resized_crop: Replace images by a part of random size and place, resized to the size of the image
    :param random_flip: The probability that the images of a sample are mirrored; actions are not, see `KEY_is_flipped`
    :param color_jitter: Change brightness, contrast, saturation and hue of images at random
    :param layout: Channels last (hwc) or first (chw)
    :param dtype: The dtype of images; floats are scaled to 0..1

    ``random_jpeg`` is a :class:`kinograph.RandomJpeg`, ``random_resized_crop`` a :class:`kinograph.RandomResizedCrop` and
    ``color_jitter`` a :class:`kinograph.ColorJitter`. They, ``size``, ``crop`` and ``random_flip`` may also be dicts by
    key, for cameras that differ.
    """

    size: Size | None = None
    resize: ResizeMode = "exact"
    crop: Size | None = None
    random_crop: bool = False
    random_jpeg: RandomJpeg | Mapping[str, RandomJpeg] | None = None
    random_resized_crop: RandomResizedCrop | Mapping[str, RandomResizedCrop] | None = None
    random_flip: float | Mapping[str, float] | None = None
    color_jitter: ColorJitter | Mapping[str, ColorJitter] | None = None
    layout: Layout = "hwc"
    dtype: ImageDtype = "uint8"

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", to_word("images: layout", self.layout, get_args(Layout)))
        object.__setattr__(
            self, "dtype", to_word("images: dtype", dtype_name(self.dtype), get_args(ImageDtype))
        )
        object.__setattr__(
            self, "resize", to_word("images: resize", self.resize, get_args(ResizeMode))
        )
        if self.resize != "exact" and self.size is None:
            raise InvalidArgumentError("images: resize needs `size`, the size to resize to")
        if self.random_crop and self.crop is None:
            raise InvalidArgumentError("images: random_crop needs `crop`, the size to crop to")
        self._to_json()

    def without_augmentation(self) -> Images:
        """Return the same images without anything random, for validation; crops are then at the centre.

        >>> images = kinograph.Images(crop=(28, 20), random_crop=True, random_flip=0.5)
        >>> images.without_augmentation() == kinograph.Images(crop=(28, 20))
        True
        """
        return dataclasses.replace(
            self,
            random_crop=False,
            random_jpeg=None,
            random_resized_crop=None,
            random_flip=None,
            color_jitter=None,
        )

    def _to_json(self) -> dict[str, Any]:
        return {
            "size": to_size("images: size", self.size),
            "resize": self.resize,
            "crop": to_size("images: crop", self.crop),
            "random_crop": bool(self.random_crop),
            "random_jpeg": _by_key("random_jpeg", self.random_jpeg, RandomJpeg(quality=(30, 95))),
            "random_resized_crop": _by_key(
                "random_resized_crop",
                self.random_resized_crop,
                RandomResizedCrop(scale=(0.9, 0.9)),
            ),
            "random_flip": to_flip(self.random_flip),
            "color_jitter": _by_key("color_jitter", self.color_jitter, ColorJitter(brightness=0.2)),
            "layout": self.layout,
            "dtype": self.dtype,
        }


def _by_key(
    name: str, option: object, example: RandomJpeg | RandomResizedCrop | ColorJitter
) -> Any:  # noqa: ANN401 (a value of JSON)
    """Take an augmentation of all cameras, or by key; each may be a dict of its arguments."""
    kind = type(example)
    if option is None:
        return None
    if isinstance(option, kind):
        return option._to_json()
    if isinstance(option, Mapping):
        names = [field.name for field in dataclasses.fields(kind)]
        if all(isinstance(one, kind | Mapping) for one in option.values()):
            return {key: _by_key(name, one, example) for key, one in option.items()}
        for field in option:
            if field not in names:
                raise unknown_option(f"kinograph.{kind.__name__}", field, names)
        return kind(**option)._to_json()
    raise InvalidArgumentError(f"images: {name} is {option!r}; give kinograph.{example!r}")


def to_images(images: Images | Mapping[str, Any] | None) -> Images:
    """Take image options, also as a dict of them."""
    if images is None:
        return Images()
    if isinstance(images, Images):
        return images
    if isinstance(images, Mapping):
        names = [field.name for field in dataclasses.fields(Images)]
        for name in images:
            if name not in names:
                raise unknown_option("kinograph.Images", name, names)
        return Images(**images)
    raise InvalidArgumentError(
        f"images is {images!r}; give kinograph.Images(size=(224, 224), dtype='float32')"
    )


def dtype_name(dtype: object) -> object:
    """Take ``"float32"``, ``np.float32`` and ``torch.float32`` alike."""
    if isinstance(dtype, type):
        return dtype.__name__
    return str(dtype).removeprefix("torch.")


def global_batch(batch_size: int | None, global_batch_size: int | None, world_size: int) -> int:
    """Count the samples of a batch over all ranks."""
    if (batch_size is None) == (global_batch_size is None):
        raise InvalidArgumentError(
            "give exactly one of `batch_size` (samples per rank) and `global_batch_size` (over all ranks)"
        )
    if global_batch_size is not None:
        return global_batch_size
    return to_whole("batch_size", batch_size, least=1) * world_size


def to_size(name: str, size: Size | None) -> Any:  # noqa: ANN401 (a value of JSON)
    """Take height and width of all cameras, or by key; how large they may be is the core's to say."""
    if size is None:
        return None
    if isinstance(size, Mapping):
        return {key: _to_pair(f"{name} of `{key}`", pair) for key, pair in size.items()}
    return _to_pair(name, size)


def _to_pair(name: str, pair: object) -> list[int]:
    if is_number(pair):
        raise InvalidArgumentError(
            f"{name} is {pair!r}; give (height, width), such as ({pair}, {pair})"
        )
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidArgumentError(f"{name} is {pair!r}; give (height, width)")
    return [to_whole(f"{name}: a side", side, least=1) for side in pair]


def to_count(name: str, count: int | None) -> int | None:
    """Take a number of threads or batches; the core chooses if there is none."""
    return None if count is None else to_whole(name, count, least=1, most=1024)


def to_cpu(cpu: float | str | None) -> float | str | None:
    """Take cores, such as ``2.5``, or a percentage of the machine, such as ``"50%"``."""
    if cpu is None:
        return None
    is_percentage = isinstance(cpu, str) and cpu.endswith("%")
    try:
        share = float(str(cpu).removesuffix("%")) if is_percentage else to_number("cpu", cpu)
    except (ValueError, InvalidArgumentError):
        share = 0.0
    if not 0 < share < float("inf"):
        raise InvalidArgumentError(
            f"cpu is {cpu!r}; give cores, such as 2.5, or a percentage of the machine, such as '50%'"
        )
    return cpu if is_percentage else share


# What other loaders call it, and what to do here.
_FOREIGN = {
    "num_workers": "it has threads of its own instead of worker processes; see `threads=`",
    "worker_init_fn": "it has threads of its own instead of worker processes",
    "persistent_workers": "its threads live as long as the loader",
    "multiprocessing_context": "it has threads of its own instead of worker processes",
    "prefetch_factor": "see `prefetch=`, a number of batches; by default it is chosen while the loader runs",
    "pin_memory": 'with `device="cuda"` batches are assembled in page-locked memory and copied ahead of the training loop',
    "pin_memory_device": 'give `device="cuda"`',
    "collate_fn": "samples become batches in the core; give `transform=` for what changes samples, or `batch_transform=` for batches",
    "transforms": "give `transform=`, a function of a sample",
    "image_transforms": "resize, crop, dtype and augmentation are `images=kinograph.Images(...)`; other transforms are `transform=`, a function of a sample",
    "sampler": "see `shuffle=`, `episodes=` and `filter=`, or pass a list of kinograph.Source with weights",
    "batch_sampler": "see `batch_size=` and `shuffle=`",
    "generator": "give `seed=`",
    "timeout": "a batch that cannot be read is an error; there is no timeout",
    "channels_first": 'give `images=kinograph.Images(layout="chw")`',
    "image_layout": "give `images=kinograph.Images(layout=...)`",
    "image_dtype": "give `images=kinograph.Images(dtype=...)`",
    "image_size": "give `images=kinograph.Images(size=(height, width))`",
    "image_crop": "give `images=kinograph.Images(crop=(height, width))`",
    "random_flip": "give `images=kinograph.Images(random_flip=0.5)`",
    "random_resized_crop": "give `images=kinograph.Images(random_resized_crop=kinograph.RandomResizedCrop(...))`",
    "color_jitter": "give `images=kinograph.Images(color_jitter=kinograph.ColorJitter(...))`",
    "random_crop": "give `images=kinograph.Images(crop=(height, width), random_crop=True)`",
    "jpeg": "give `images=kinograph.Images(random_jpeg=kinograph.RandomJpeg(...))`",
    "random_jpeg": "give `images=kinograph.Images(random_jpeg=kinograph.RandomJpeg(...))`",
    "pool": "give `shuffle=kinograph.Shuffle(...)`, and the memory budget as `memory=`",
    "by_shard": "give `shuffle=kinograph.Shuffle(by_shard=True, ...)`",
    "lanes": "give `shuffle=kinograph.Shuffle(lanes=..., ...)`",
    "tail": "give `last_batch=`",
}


def check_names(owner: type, names: Iterable[str], *, positional: int = 0) -> None:
    """Refuse a keyword that the owner's ``__init__`` does not have, with what to use instead."""
    known = list(inspect.signature(owner).parameters)
    if positional > 1:
        raise TypeError(
            f"{owner.__module__}.{owner.__qualname__} takes one positional argument, the dataset; give options by name, such "
            "as batch_size=32"
        )
    for name in names:
        if name not in known:
            raise unknown_option(f"{owner.__module__}.{owner.__qualname__}", name, known)


def unknown_option(owner: str, name: str, known: list[str]) -> TypeError:
    """Say that there is no such option, and which one is meant."""
    if name in _FOREIGN:
        return TypeError(f"{owner} has no option `{name}`: {_FOREIGN[name]}")
    close = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(known)}"
    return TypeError(f"{owner} has no option `{name}`; {advice}")
