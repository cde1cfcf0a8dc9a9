"""Linking recordings: datasets whose camera images stay in the recording's own files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kinograph import _core
from kinograph._arguments import U64, to_whole
from kinograph._defects import Defect, OnDefect, Packed
from kinograph._source import to_source
from kinograph._writer import MEMORY, SHARD_SIZE, Mode, Plan, to_options


def link(  # noqa: PLR0913 (each is a keyword of its own)
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    mode: Mode = "new",
    root: str | os.PathLike[str] | None = None,
    trust: bool = False,
    pack_rest: bool = False,
    rate_hz: float | None = None,
    format: str | None = None,  # noqa: A002 (same name as in the CLI)
    mapping: str | os.PathLike[str] | None = None,
    streams: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    episodes: str | Iterable[int | str] | None = None,
    follow_links: bool = False,
    on_defect: OnDefect = "error",
    plan: Plan = None,
    shard_size: int | str = SHARD_SIZE,
    memory: int | str = MEMORY,
    threads: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    seed: int = 0,
    prefix: str = "",
    progress: Callable[[int, int], object] | None = None,
) -> Packed:
    """Make a dataset whose camera images stay in the files of a recording.

    Vectors, text, index and checksums are written to ``target``. The images are read from the recording's own files when
    they are needed, so these must stay as they are: a file that was moved, removed or changed is an error that names it.
    Videos of LeRobot datasets, JPEG files in ACT (ALOHA) HDF5 files and in tars, and images in uncompressed HDF5 datasets
    can be linked;
    ``docs/guide/link.md`` has the details.

    >>> import pathlib
    >>> recording = pathlib.Path(kinograph.__file__).parents[2] / "tests" / "data" / "lift_3demos.hdf5"
    >>> linked = kinograph.link(recording, "linked.kino", pack_rest=True)
    >>> linked.version, linked.episodes
    (1, 3)
    >>> [file.path for file in kinograph.open("linked.kino").links.files]
    ['lift_3demos.hdf5']

    Everything works with it as with a packed dataset: samples, loaders, :func:`kinograph.export`,
    :func:`kinograph.verify`. ``kinograph repack linked.kino copy.kino`` makes a copy that needs no other files.

    :param root: the folder that the paths of linked files are relative to; it must contain all of them. Default: that
        of the source. If the files are moved later, pass their new folder as ``root`` to :func:`kinograph.open`.
    :param trust: whether to link without reading the files. It takes seconds instead of one read of everything, but
        images have no statistics, and a checksum only from the moment they are first read.
    :param pack_rest: whether to store cameras that cannot be linked in the dataset; otherwise they are an error.
    :param mode: as for :class:`Writer`.
    :param rate_hz: frames per second; default: the recording's own rate.
    :param format: the recording's format; default: detected. ``kinograph pack --help`` lists them.
    :param mapping: a TOML file that says which object of the recording becomes which stream.
    :param streams: import only streams that match one of these patterns; see :func:`kinograph.pack`.
    :param exclude: skip streams that match one of these patterns.
    :param episodes: import only these episodes.
    :param follow_links: whether to follow links that lead out of the recording's folder.
    :param on_defect: ``"error"`` refuses a recording with defects and lists them all, ``"drop-episode"`` skips the
        affected episodes, ``"keep"`` imports everything readable.
    :param plan: codecs of the streams that are stored.
    :param seed: random seed for the on-disk episode order.
    :param prefix: prefix of the episode ids.
    :param progress: called with the bytes of frames done and the total. An exception raised by it stops the link, which
        ``mode="resume"`` can continue.
    """
    writer = to_options(
        mode=mode,
        plan=plan,
        quality=None,
        shard_size=shard_size,
        memory=memory,
        threads=threads,
        attributes=attributes,
        settings={},
    )
    options: _core.PackArgs = {
        "writer": writer,
        "source": to_source(
            format=format,
            mapping=mapping,
            rate_hz=rate_hz,
            streams=streams,
            exclude=exclude,
            episodes=episodes,
            follow_links=follow_links,
            keep_dtype=False,
        ),
        "on_defect": on_defect,
        "seed": to_whole("seed", seed, most=U64),
        "prefix": prefix,
        "link": {"root": root, "trust": trust, "pack_rest": pack_rest},
    }
    committed, defects = _core.pack(source, target, options, progress)
    return Packed(*committed, [Defect(*defect) for defect in defects])
