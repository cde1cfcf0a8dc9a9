"""How the probe measures: the options that :func:`kinograph.probe` and :func:`kinograph.plan` share."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from kinograph import _core
from kinograph._arguments import to_number, to_whole
from kinograph._errors import InvalidArgumentError
from kinograph._loader_options import Images, to_size

if TYPE_CHECKING:
    from kinograph._probe_network import Network

#: Streams, or streams and their elements.
Chosen: TypeAlias = "Sequence[str] | Mapping[str, Sequence[int] | None]"

#: What turns images into features.
Encoder: TypeAlias = Literal["random", "trained", "auto"]


class ProbeOptions(TypedDict, total=False):
    """Options of the probe inside :func:`kinograph.plan`, each as for :func:`kinograph.probe`."""

    inputs: Chosen
    targets: Chosen
    chunk: int
    images: Images | Mapping[str, Any]
    seconds: float
    encoder: Encoder
    features: int
    seeds: int
    folds: int
    margin: float
    seed: int


def say(text: str) -> None:
    """Write a line about what comes next to stderr."""
    sys.stderr.write(f"kinograph probe: {text}\n")


def _chosen(name: str, chosen: Chosen) -> list[tuple[str, list[int] | None]]:
    if isinstance(chosen, str):
        raise InvalidArgumentError(
            f"{name} is {chosen!r}; give a list of streams, such as [{chosen!r}]"
        )
    if not isinstance(chosen, Mapping):
        return [(stream, None) for stream in chosen]
    return [
        (
            stream,
            None
            if elements is None
            else [to_whole(f"{name}: an element", one) for one in elements],
        )
        for stream, elements in chosen.items()
    ]


def to_probe(  # noqa: PLR0913 (each is a keyword of its own)
    *,
    inputs: Chosen = (),
    targets: Chosen = (),
    chunk: int = 16,
    images: Images | Mapping[str, Any] | None = None,
    seconds: float = 180.0,
    encoder: Encoder = "random",
    features: int = 1024,
    seeds: int = 3,
    folds: int = 10,
    margin: float = 0.02,
    seed: int = 0,
) -> _core.ProbeArgs:
    if isinstance(images, Mapping):
        images = Images(**images)
    size = None if images is None else to_size("images: size", images.size)
    crop = None if images is None else to_size("images: crop", images.crop)
    if images is not None and images.resize != "exact":
        raise InvalidArgumentError("images: the probe resizes exactly; omit `resize`")
    if isinstance(size, dict) or isinstance(crop, dict):
        raise InvalidArgumentError(
            "images: the probe needs one size for all cameras, such as (224, 224)"
        )
    if encoder not in get_args(Encoder):
        raise InvalidArgumentError(
            f"encoder is {encoder!r}; it must be 'random', 'trained' or 'auto'"
        )
    if encoder == "trained":
        # Refused before anything is packed or measured.
        new_network()
    return {
        "inputs": _chosen("inputs", inputs),
        "targets": _chosen("targets", targets),
        "chunk": to_whole("chunk", chunk, least=1),
        "size": None if size is None else (size[0], size[1]),
        "crop": None if crop is None else (crop[0], crop[1]),
        "encoder": encoder,
        "features": to_whole("features", features, least=64),
        "seeds": to_whole("seeds", seeds, least=1),
        "folds": to_whole("folds", folds, least=3),
        "seconds": to_number("seconds", seconds),
        "margin": to_number("margin", margin),
        "seed": to_whole("seed", seed),
    }


def new_network() -> Network:
    """Make the network that learns features of images; the core calls this too."""
    try:
        from kinograph._probe_network import Network  # noqa: PLC0415 (it needs torch)
    except ImportError as error:
        raise ImportError(
            "the encoder 'trained' needs torch, which is not installed; run `pip install torch`, or use the encoder 'random'"
        ) from error
    return Network()
