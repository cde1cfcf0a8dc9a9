"""Packing recordings of other tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from kinograph import _core
from kinograph._writer import MEMORY_BYTES, SHARD_BYTES, Mode, Plan, to_count, to_options

#: What to do with the defects of a recording.
OnDefect: TypeAlias = Literal["error", "drop-episode", "keep"]


class Defect(NamedTuple):
    """Something in a recording that is not as it should be, or that is worth knowing.

    ``action`` is what was done: ``"note"`` (nothing is wrong), ``"kept"``, ``"lost"`` (the object was left out) or
    ``"dropped"`` (its whole episode was). ``lost`` is true for the last two.
    """

    place: str
    what: str
    episode: str | None
    action: str
    lost: bool


class Packed(NamedTuple):
    """What packing made, and what was amiss in the source."""

    version: int
    id: str
    episodes: int
    defects: list[Defect]


def pack(  # noqa: PLR0913 (each is a keyword of its own)
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    mode: Mode = "new",
    rate_hz: float | None = None,
    format: str | None = None,  # noqa: A002 (the word of the command)
    mapping: str | os.PathLike[str] | None = None,
    on_defect: OnDefect = "error",
    plan: Plan = None,
    quality: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    memory_bytes: int = MEMORY_BYTES,
    threads: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    seed: int = 0,
    prefix: str = "",
    progress: Callable[[int, int], object] | None = None,
) -> Packed:
    """Pack a recording of another tool, a file or a folder of files, into a dataset.

    Reads HDF5 in the layouts of robomimic (and LIBERO) and of ACT (ALOHA), and LeRobot datasets v2.0, v2.1 and v3.0
    (their videos need ``pip install 'kinograph[video]'``). Nothing is left out in silence: see
    ``defects`` of the result.

    >>> import pathlib
    >>> recording = pathlib.Path(kinograph.__file__).parents[2] / "tests" / "data" / "lift_3demos.hdf5"
    >>> packed = kinograph.pack(recording, "packed.kino")
    >>> packed.version, packed.episodes, packed.defects
    (1, 3, [])
    >>> kinograph.open("packed.kino")["demo_0"]
    Episode('demo_0': 36 frames, 1.75 s at 20 Hz, 17 streams)

    Streams bear the names of the file's datasets, splits those of its masks. Everything comes back bit for bit
    unless a plan or a quality says otherwise; see :class:`Writer` for these and the other options.

    :param rate_hz: frames per second, instead of what the recording says.
    :param format: the recording's format, instead of the one it is recognised as; ``kinograph pack --help`` lists them.
    :param mapping: a TOML file that says which part of the recording is which stream.
    :param on_defect: ``"error"`` refuses a recording with defects and lists them all, ``"drop-episode"`` leaves out the
        episodes that have one, ``"keep"`` keeps all that can be kept.
    :param seed: fixes the order in which episodes lie on disk.
    :param prefix: what the ids of the episodes begin with, so that two recordings with a ``demo_0`` go into one dataset.
    :param progress: called with the bytes of frames done and in all; what it raises ends the packing, which
        ``mode="resume"`` can take up again.
    """
    writer = to_options(
        mode=mode,
        plan=plan,
        quality=quality,
        shard_bytes=shard_bytes,
        memory_bytes=memory_bytes,
        threads=threads,
        attributes=attributes,
        resume_key="",
    )
    options: _core.PackArgs = {
        "writer": writer,
        "rate_hz": rate_hz,
        "format": format,
        "mapping": mapping,
        "on_defect": on_defect,
        "seed": to_count("seed", seed),
        "prefix": prefix,
    }
    committed, defects = _core.pack(source, target, options, progress)
    return Packed(*committed, [Defect(*defect) for defect in defects])
