"""Packing a recording by many processes, on many machines: parts, and the commit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from kinograph import _core
from kinograph._arguments import to_text
from kinograph._defects import Defect, Packed
from kinograph._errors import InvalidArgumentError
from kinograph._pack_options import PackOptions, to_pack_args

if TYPE_CHECKING:
    from typing_extensions import Unpack


class PackedPart(NamedTuple):
    """What a part of a pack has done.

    Of ``portions`` in all parts, this one has made ``made`` and found ``found`` that were there already; ``missing`` have no
    receipt yet.
    """

    portions: int
    made: int
    found: int
    missing: int
    defects: list[Defect]


def pack_part(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    part: str,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[PackOptions],
) -> PackedPart:
    """Pack a part of a recording, in this process; :func:`commit_parts` makes all parts one version.

    Parts may be packed in any order, at the same time, and on any machine that sees ``source`` and ``target``. The version is
    the one that :func:`pack` makes of the same source and options, bit for bit. A part that failed is packed again as it
    was: what it had finished stays.

    >>> import pathlib
    >>> recording = pathlib.Path(kinograph.__file__).parents[2] / "tests" / "data" / "lift_3demos.hdf5"
    >>> for part in ("2/2", "1/2"):
    ...     done = kinograph.pack_part(recording, "in_parts.kino", part=part, shard_size=1000)
    >>> done.portions, done.missing
    (3, 0)
    >>> kinograph.commit_parts("in_parts.kino").episodes
    3

    :param part: which part, such as ``"3/64"``: the third of 64.
    :param progress: called with the bytes of frames written and the total of this part. An exception raised by it stops the
        part.
    :param options: those of :func:`pack`, the same for all parts; ``mode`` is not one of them.
    """
    unknown = sorted(set(cast("dict[str, object]", options)) - set(PackOptions.__annotations__))
    if unknown:
        raise InvalidArgumentError(
            f"{unknown[0]!r} is not an option of a pack in parts; it has {', '.join(PackOptions.__annotations__)}"
        )
    how: _core.PartArgs = {"pack": to_pack_args(options, "new"), "part": to_text("part", part)}
    portions, defects = _core.pack_part(source, target, how, progress)
    return PackedPart(*portions, [Defect(*defect) for defect in defects])


def commit_parts(target: str | os.PathLike[str]) -> Packed:
    """Make the parts of a pack one version, and return it.

    Every receipt is compared with the plan of the pack, and every shard with its hash. A missing part is an error that names
    it. It can be repeated, at the same time or later: the version is made once.
    """
    (committed, defects), _ = _core.commit_parts(target)
    return Packed(*committed, [Defect(*defect) for defect in defects])
