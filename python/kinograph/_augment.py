"""Augmentation of images: its options, from what a user writes to the JSON that the core reads.

The core changes the images of each sample when it puts them into the batch, by numbers that depend on the seed, the
sample's index and the key alone: ``spec/order.md`` defines them.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias

from kinograph._arguments import to_number
from kinograph._errors import InvalidArgumentError, KinographWarning, outside

# As torchvision takes them: how far from 1 (of hue: from 0), or the least and the greatest.
Range: TypeAlias = "float | tuple[float, float]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomResizedCrop:
    """A part of random size at a random place instead of the image, resized to the size that the image had.

    >>> crop = kinograph.RandomResizedCrop(scale=(0.8, 1.0), ratio=(0.9, 1.1))
    >>> images = kinograph.Images(size=(16, 16), random_resized_crop=crop)
    >>> loader = kinograph.numpy.Loader(ds, windows={"obs/agentview_image": [0]}, batch_size=8, images=images)
    >>> next(iter(loader))["obs/agentview_image"].shape
    (8, 1, 16, 16, 3)

    :param scale: The least and the greatest share of the image's area, up to 1; or one share
    :param ratio: The least and the greatest ratio of width to height, relative to the image's: 1 keeps the proportions

    It follows ``size`` and ``crop``. The part is drawn for each sample and key: all frames of a window have the same.
    """

    scale: Range
    ratio: Range = (1.0, 1.0)

    def __post_init__(self) -> None:
        self._to_json()

    def _to_json(self) -> dict[str, Any]:
        name = "random_resized_crop"
        return {
            "scale": _to_range(f"{name}: scale", self.scale),
            "ratio": _to_range(f"{name}: ratio", self.ratio),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColorJitter:
    """Random brightness, contrast, saturation and hue, as torchvision's ``ColorJitter`` changes them, in a random order.

    >>> jitter = kinograph.ColorJitter(brightness=0.3, contrast=0.4, saturation=0.5, hue=(-0.05, 0.05))
    >>> images = kinograph.Images(color_jitter=jitter)
    >>> loader = kinograph.numpy.Loader(ds, windows={"obs/agentview_image": [0]}, batch_size=8, images=images)
    >>> next(iter(loader))["obs/agentview_image"].dtype
    dtype('uint8')

    :param brightness: How far its factor may be from 1: 0.3 is 0.7 to 1.3; or the least and the greatest factor
    :param contrast: The same, for the distance to the mean grey of the image
    :param saturation: The same, for the distance to the grey of each pixel
    :param hue: How far hue may move, as a fraction of the colour wheel, up to 0.5; or the least and the greatest move
    :param p: The probability that the images of a sample are changed

    Factors are drawn for each sample and key: all frames of a window have the same. Pixels are computed as floats and rounded
    once.
    """

    brightness: Range = 0.0
    contrast: Range = 0.0
    saturation: Range = 0.0
    hue: Range = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        self._to_json()

    def _to_json(self) -> dict[str, Any]:
        around = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
        ranges = {
            name: _around(f"color_jitter: {name}", getattr(self, name), middle)
            for name, middle in around.items()
        }
        return {**ranges, "p": to_number("color_jitter: p", self.p)}


def _around(name: str, spread: object, middle: float) -> list[float]:
    """Take a range, or how far it goes from its middle; factors are not below 0."""
    if not isinstance(spread, numbers.Real):
        return _to_range(name, spread)
    width = _to_finite(name, spread)
    if width < 0:
        raise InvalidArgumentError(
            f"{name} is {spread!r}; give a number from 0 on, or the least and the greatest"
        )
    least = middle - width
    return [max(0.0, least) if middle else least, middle + width]


def _to_range(name: str, pair: object) -> list[float]:
    if isinstance(pair, numbers.Real):
        pair = (pair, pair)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidArgumentError(
            f"{name} is {pair!r}; give the least and the greatest, such as (0.8, 1.0)"
        )
    return [_to_finite(name, one) for one in pair]


def _to_finite(name: str, number: object) -> float:
    finite = to_number(name, number)
    if not math.isfinite(finite):
        raise InvalidArgumentError(f"{name} is {number!r}; give a finite number")
    return finite


def to_flip(flip: object) -> Any:  # noqa: ANN401 (a value of JSON)
    """Take the probability that images are mirrored, of all cameras or by key."""
    if flip is None:
        return None
    if isinstance(flip, Mapping):
        return {key: to_flip(one) for key, one in flip.items()}
    if isinstance(flip, bool):
        raise InvalidArgumentError("images: random_flip is a probability, such as 0.5")
    return to_number("images: random_flip", flip)


def warn_of_flip() -> None:
    """Say once that actions are not mirrored with the images."""
    warnings.warn(
        "random_flip mirrors images and nothing else: left in the actions and states is then right in the image. Mirror "
        "them where the batch's `KEY_is_flipped` is set, with `transform=` or `batch_transform=`, or leave random_flip out",
        KinographWarning,
        stacklevel=outside(),
    )
