"""Repacking: a dataset into another one, or into its own next version, with another plan."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from kinograph import _core
from kinograph._arguments import U64, to_whole
from kinograph._dataset import Generation
from kinograph._errors import InvalidArgumentError
from kinograph._pack_options import WriterOptions, to_writer_args
from kinograph._source import to_texts
from kinograph._writer import MEMORY, SHARD_SIZE, Mode, Plan


class RepackedStream(NamedTuple):
    """What happened to a stream, and what it takes now in all episodes of the new version.

    ``max_abs_error`` and ``psnr_db`` are the error of its codec against the frames that were encoded; if these were lossy
    before, ``generations`` lists how. ``note`` says why a stream is copied although the plan has a rule for it.
    """

    name: str
    action: Literal["copied", "encoded", "dropped"]
    codecs_before: list[str]
    codecs: list[str]
    bytes_before: int
    bytes: int
    max_abs_error: float
    psnr_db: float | None
    generations: list[Generation]
    note: str | None


class RepackOptions(WriterOptions, total=False):
    """The options of :func:`kinograph.repack` for a new dataset; each has the default that it has there."""

    allow_generation_loss: bool
    streams: str | Iterable[str] | None
    exclude: str | Iterable[str] | None
    episodes: str | Iterable[int | str] | None
    version: int | None
    root: str | os.PathLike[str] | None


def to_repack_args(options: RepackOptions, mode: Mode) -> _core.RepackArgs:
    """Check the options and convert them for the core."""
    version = options.get("version")
    return {
        "writer": to_writer_args(options, mode),
        "version": None if version is None else to_whole("version", version, most=U64),
        "root": options.get("root"),
        "streams": to_texts("streams", options.get("streams")),
        "exclude": to_texts("exclude", options.get("exclude")),
        "episodes": to_texts("episodes", options.get("episodes")),
        "allow_generation_loss": options.get("allow_generation_loss", False),
    }


class Repacked(NamedTuple):
    """The result of repacking: the new version, how many episodes it has anew, and each stream."""

    version: int
    id: str
    episodes: int
    streams: list[RepackedStream]


def repack(  # noqa: PLR0913 (each is a keyword of its own)
    dataset: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    mode: Mode = "new",
    plan: Plan = None,
    quality: int | None = None,
    allow_generation_loss: bool = False,
    streams: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    episodes: str | Iterable[int | str] | None = None,
    version: int | None = None,
    root: str | os.PathLike[str] | None = None,
    shard_size: int | str = SHARD_SIZE,
    memory: int | str = MEMORY,
    threads: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    created: str | datetime.datetime | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Repacked:
    """Copy a dataset, or store it with another plan.

    Streams that the plan does not change are copied page by page, bit for bit; without a plan all of them are. The
    others are decoded and encoded again. Ids, times, events, splits, labels, attributes and sources stay.

    >>> repacked = kinograph.repack("lift.kino", "small.kino", plan={"stream": [{"kind": "image", "codec": "jpeg:q=90"}]})
    >>> [(stream.name, stream.action) for stream in repacked.streams if stream.action != "copied"]
    [('obs/agentview_image', 'encoded')]
    >>> (kinograph.open("small.kino")[0]["actions"][:] == kinograph.open("lift.kino")[0]["actions"][:]).all()
    np.True_

    The copy of a linked dataset (:func:`kinograph.link`) needs no other files. ``in_place=True`` makes a new version of
    the dataset itself; the version before stays readable with ``kinograph.open(path, version=…)``, so nothing is
    freed.

    Frames that were compressed with loss before would lose more if they were encoded with loss again. That is refused,
    unless you allow it:

    >>> plan = {"stream": [{"kind": "image", "codec": "jpeg:q=50"}]}
    >>> kinograph.repack("small.kino", "smaller.kino", plan=plan)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    kinograph.InvalidArgumentError: frames that were compressed with loss would lose more: `obs/agentview_image`, ...
    >>> again = kinograph.repack("small.kino", "smaller.kino", plan=plan, allow_generation_loss=True)
    >>> [generation.codec for stream in again.streams for generation in stream.generations]
    ['jpeg:q=90,sub=444']

    :param target: the folder of the new dataset.
    :param in_place: whether to make a new version of ``dataset`` instead.
    :param mode: ``"new"`` refuses a non-empty folder, ``"append"`` adds the episodes to a dataset, ``"resume"`` continues
        an interrupted repack with the same options, ``"overwrite"`` replaces a dataset. A repack in place always
        continues an interrupted one.
    :param plan: codecs per stream: the path of a TOML file, or the same as a dict. Streams without a rule are copied.
    :param quality: store images as JPEG of this quality (1 to 100) unless the plan has a rule for them, or that saves
        nothing.
    :param allow_generation_loss: whether frames that were compressed with loss before, such as JPEG files, video and
        streams with a bound, may lose more. The new loss is measured against the stored frames, and both are recorded.
    :param streams: take only streams that match one of these patterns.
    :param exclude: drop streams that match one of these patterns.
    :param episodes: take only these episodes: numbers (those at the end of their ids, or positions), ranges
        (``"0-9"``, both ends included), ids, or patterns for ids.
    :param version: the version to repack; default: the newest.
    :param root: the folder of the files that the dataset links to, if they were moved.
    :param shard_size: target size of a shard, such as ``"128MB"``.
    :param memory: memory limit for in-flight frames, such as ``"512MB"``.
    :param threads: worker threads; default: one per core.
    :param attributes: attributes of the new version, in addition to those of the dataset.
    :param created: when the version says it was created, such as ``"2026-11-19T12:00:00Z"``; default: now.
    :param progress: called with the bytes of frames written and the total. An exception raised by it stops the repack,
        which ``mode="resume"`` can continue.
    """
    if in_place == (target is not None):
        raise InvalidArgumentError("name a target, or pass in_place=True")
    if in_place and mode not in ("new", "resume"):
        raise InvalidArgumentError(f"mode {mode!r} does not apply to a repack in place; remove it")
    options: RepackOptions = {
        "plan": plan,
        "quality": quality,
        "allow_generation_loss": allow_generation_loss,
        "streams": streams,
        "exclude": exclude,
        "episodes": episodes,
        "version": version,
        "root": root,
        "shard_size": shard_size,
        "memory": memory,
        "threads": threads,
        "attributes": attributes,
        "created": created,
    }
    committed, found = _core.repack(dataset, target, to_repack_args(options, mode), progress)
    return Repacked(*committed, [_to_stream(stream) for stream in found])


def _to_stream(stream: _core._RepackedStream) -> RepackedStream:
    name, action, codecs, stored, error, generations, note = stream
    earlier = [Generation(*generation) for generation in generations]
    return RepackedStream(name, action, *codecs, *stored, *error, earlier, note)
