"""Defects of a recording, and what was done about them."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

#: What to do with the defects of a recording.
OnDefect: TypeAlias = Literal["error", "drop-episode", "keep"]


class Defect(NamedTuple):
    """Something in a recording that is not as it should be, or that is worth knowing.

    ``action`` is what was done: ``"note"`` (nothing is wrong), ``"kept"``, ``"lost"`` (the object was not imported) or
    ``"dropped"`` (its whole episode was). ``lost`` is true for the last two.
    """

    place: str
    what: str
    episode: str | None
    action: str
    lost: bool


class Packed(NamedTuple):
    """The result of packing, and the defects of the source."""

    version: int
    id: str
    episodes: int
    defects: list[Defect]
