"""What no version of a dataset needs: listed, and removed when asked to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

from kinograph import _core


class StagedWork(NamedTuple):
    """What one writer has in a dataset's ``staging/``."""

    path: Path
    state: Literal["at work", "can be resumed", "garbage"]
    episodes: int
    bytes: int
    settings: dict[str, str]


class Garbage(NamedTuple):
    """What no version needs; removing it frees ``bytes``."""

    bytes: int
    files: list[Path]
    writers: list[StagedWork]


def gc(path: str | os.PathLike[str], *, delete: bool = False, interrupted: bool = False) -> Garbage:
    """List what no version of a dataset needs, and remove it with ``delete=True``.

    Writers that were killed leave files behind, and episodes that ``Writer(mode="resume")`` could still add. Every version
    keeps its files. Nothing is removed while a writer is at work: that raises ``ConflictError``.

    >>> kinograph.gc("lift.kino")
    Garbage(bytes=0, files=[], writers=[])

    :param delete: remove the garbage.
    :param interrupted: count work that could be resumed as garbage too.
    """
    size, files, writers = _core.gc(path, delete, interrupted)
    return Garbage(
        size,
        [Path(file) for file in files],
        [
            StagedWork(Path(place), state, episodes, length, settings)
            for place, state, episodes, length, settings in writers
        ],
    )
