"""Packing recordings of other tools, and episodes from Python."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kinograph import _core
from kinograph._arguments import to_number
from kinograph._defects import Defect, OnDefect, Packed
from kinograph._errors import InvalidArgumentError
from kinograph._pack_episodes import pack_episodes
from kinograph._pack_options import PackOptions, to_pack_args
from kinograph._writer import MEMORY, SHARD_SIZE, Mode, Plan


def pack(  # noqa: PLR0913 (each is a keyword of its own)
    source: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    target: str | os.PathLike[str],
    *,
    mode: Mode = "new",
    rate_hz: float | None = None,
    format: str | None = None,  # noqa: A002 (same name as in the CLI)
    mapping: str | os.PathLike[str] | None = None,
    streams: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    episodes: str | Iterable[int | str] | None = None,
    follow_links: bool = False,
    keep_dtype: bool = False,
    on_defect: OnDefect = "error",
    plan: Plan = None,
    quality: int | None = None,
    shard_size: int | str = SHARD_SIZE,
    memory: int | str = MEMORY,
    threads: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    seed: int = 0,
    prefix: str = "",
    created: str | datetime.datetime | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Packed:
    """Pack a recording of another tool, a file or a folder of files, into a dataset; or episodes from any iterable.

    Formats are in ``docs/guide/import.md``; the videos of LeRobot datasets need ``pip install 'kinograph[video]'``. Nothing
    is skipped silently: see ``defects`` of the result.

    >>> import pathlib
    >>> recording = pathlib.Path(kinograph.__file__).parents[2] / "tests" / "data" / "lift_3demos.hdf5"
    >>> packed = kinograph.pack(recording, "packed.kino")
    >>> packed.version, packed.episodes, packed.defects
    (1, 3, [])
    >>> kinograph.open("packed.kino")["demo_0"]
    Episode('demo_0': 36 frames, 1.75 s at 20 Hz, 17 streams)

    Streams are named after the file's datasets, splits after its masks. Everything is lossless
    unless you pass a plan or a quality; see :class:`Writer` for these and the other options.

    Select part of a recording with patterns for streams, in which ``*`` matches within one path component, ``**``
    crosses ``/`` and ``?`` is one character, and with numbers, ranges or ids of episodes. Files of excluded streams and episodes are not needed:

    >>> part = kinograph.pack(recording, "part.kino", exclude="obs/*_image", episodes="0-1")
    >>> [episode.id for episode in kinograph.open("part.kino")]
    ['demo_0', 'demo_1']

    An iterable yields one dict per episode, with ``streams`` and the other keywords of :meth:`Writer.add_episode`:

    >>> def episodes():
    ...     for number in range(2):
    ...         yield {"id": f"take_{number}", "streams": {"actions": np.zeros((50, 7))}, "task": "wave"}
    >>> kinograph.pack(episodes(), "takes.kino", rate_hz=20.0).episodes
    2

    They are stored in order. ``mode="resume"`` skips the ids that an interrupted pack had
    finished; the iterable must yield the same episodes again.

    To copy a dataset, or to store it with another plan, use :func:`repack`.

    :param rate_hz: frames per second; default: the recording's own rate. For an iterable, the rate of
        episodes without one.
    :param format: the recording's format; default: detected. ``kinograph pack --help`` lists them.
    :param mapping: a TOML file that says which object of the recording becomes which stream.
    :param streams: import only streams that match one of these patterns.
    :param exclude: skip streams that match one of these patterns; their files are neither needed nor opened.
    :param episodes: import only these episodes: numbers (those at the end of their ids, or positions), ranges
        (``"0-9"``, both ends included), ids, or patterns for ids.
    :param follow_links: whether to follow links that lead out of the recording's folder, such as those of the Hugging
        Face cache. Refused by default, because a downloaded recording could link to any of your files.
    :param keep_dtype: whether to import float images that hold only whole numbers from 0 to 255 as they are. By default
        they become uint8 images, which loses nothing; exports of arrays restore their dtype.
    :param on_defect: ``"error"`` refuses a recording with defects and lists them all, ``"drop-episode"`` skips the
        affected episodes, ``"keep"`` imports everything readable.
    :param seed: random seed for the on-disk episode order.
    :param prefix: prefix of the episode ids, so that two recordings with a ``demo_0`` fit into one dataset.
    :param created: when the version says it was created, such as ``"2026-11-19T12:00:00Z"``; default: now. The same
        recording, options and time give the same version id.
    :param progress: called with the bytes of frames written and the total (for an iterable: episodes done, and the
        total if it has a length). An exception raised by it stops the pack, which ``mode="resume"`` can continue.
    """
    rate_hz = None if rate_hz is None else to_number("rate_hz", rate_hz)
    if not isinstance(source, str | os.PathLike):
        for option, given in (
            ("format", format),
            ("mapping", mapping),
            ("streams", streams),
            ("exclude", exclude),
            ("episodes", episodes),
            ("created", created),
        ):
            if given is not None:
                raise InvalidArgumentError(
                    f"{option} applies to recordings on disk, not to an iterable of episodes; remove it"
                )
        return pack_episodes(
            source,
            target,
            mode=mode,
            rate_hz=rate_hz,
            on_defect=on_defect,
            prefix=prefix,
            progress=progress,
            writer_options={
                "plan": plan,
                "quality": quality,
                "shard_size": shard_size,
                "memory": memory,
                "threads": threads,
                "attributes": attributes,
            },
        )
    options: PackOptions = {
        "rate_hz": rate_hz,
        "format": format,
        "mapping": mapping,
        "streams": streams,
        "exclude": exclude,
        "episodes": episodes,
        "follow_links": follow_links,
        "keep_dtype": keep_dtype,
        "on_defect": on_defect,
        "plan": plan,
        "quality": quality,
        "shard_size": shard_size,
        "memory": memory,
        "threads": threads,
        "attributes": attributes,
        "seed": seed,
        "prefix": prefix,
        "created": created,
    }
    committed, defects = _core.pack(source, target, to_pack_args(options, mode), progress)
    return Packed(*committed, [Defect(*defect) for defect in defects])
