"""Garbage collection: lists the files that no version of a dataset needs, and deletes them on request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

from kinograph import _core
from kinograph._place import to_place


class StagedWork(NamedTuple):
    """One writer's files in a dataset's ``staging/``."""

    path: Path | str
    state: Literal["at work", "can be resumed", "garbage"]
    episodes: int
    bytes: int
    settings: dict[str, str]


class Garbage(NamedTuple):
    """Files that no version needs; deleting them frees ``bytes``."""

    bytes: int
    files: list[Path | str]
    writers: list[StagedWork]


def gc(path: str | os.PathLike[str], *, delete: bool = False, interrupted: bool = False) -> Garbage:
    """List the files that no version of a dataset needs; ``delete=True`` deletes them.

    A writer that was killed leaves files behind, and possibly episodes that ``Writer(mode="resume")`` can still add.
    Files of any version are kept; of a remote dataset also what is younger than a week. While a writer is running nothing is deleted, and ``ConflictError`` is raised.

    >>> kinograph.gc("lift.kino")
    Garbage(bytes=0, files=[], writers=[])

    :param delete: delete the garbage.
    :param interrupted: also treat resumable work of interrupted writers as garbage.
    """
    size, files, writers = _core.gc(path, delete, interrupted)
    return Garbage(
        size,
        [to_place(file) for file in files],
        [
            StagedWork(to_place(place), state, episodes, length, settings)
            for place, state, episodes, length, settings in writers
        ],
    )
