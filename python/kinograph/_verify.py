"""Checking a dataset."""

from __future__ import annotations

import os
from typing import NamedTuple

from kinograph import _core


class Damage(NamedTuple):
    """One place of a dataset that is damaged, or that cannot be read or decoded here."""

    place: str
    what: str

    def __str__(self) -> str:
        return _core.escape(f"{self.place}: {self.what}")


def verify(
    path: str | os.PathLike[str],
    *,
    decode: bool = False,
    root: str | os.PathLike[str] | None = None,
) -> list[Damage]:
    """Compare every byte of a dataset's newest version with its hash; return what is damaged or unreadable.

    The manifest, the episode table and the statistics are compared with the shards. With ``decode`` every frame is
    decoded too, and the statistics are compared with the frames. A dataset whose manifest or table is damaged raises
    ``CorruptDataError``, because nothing can be checked without them. A stream whose decoder is missing is in the result
    too, once: its bytes are right.

    If pages are linked to other files, their bytes are checked too, and with ``decode`` the hashes of the files.

    >>> kinograph.verify("lift.kino")
    []

    :param root: the folder of the linked files, if they were moved.
    """
    return [Damage(place, what) for place, what in _core.verify(path, decode, root, None)]
