"""Packing, repacking, exporting and verifying on a Ray cluster.

>>> import kinograph.ray  # doctest: +SKIP
>>> kinograph.ray.pack("/data/kitchen", "/data/kitchen.kino", address="auto")  # doctest: +SKIP

A recording is cut into portions, and each Ray task packs some of them (:func:`kinograph.pack_part`): it opens the recording
where it runs, writes shards and receipts to the target, and returns nothing but a count. So frames never pass through Ray's
object store, a task that dies can be started anywhere, and a task that is started twice does no harm. One last task commits
(:func:`kinograph.commit_parts`). The version is the one that :func:`kinograph.pack` makes on one machine, bit for bit.

:func:`repack`, :func:`export` and :func:`verify` do their work in the same way.

Every node must see what is read and the target under the same path, and have the same version of Kinograph. ``ray`` is
imported for this module only: ``pip install 'kinograph[ray]'``.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kinograph import _core
from kinograph._arguments import to_whole
from kinograph._defects import Packed
from kinograph._errors import InvalidArgumentError
from kinograph._export import Exported, ExportOptions, To, to_export_args, to_exported
from kinograph._pack_options import PackOptions, to_pack_args
from kinograph._pack_parts import commit_parts, pack_part
from kinograph._ray_tasks import (
    How,
    Work,
    call,
    cluster,
    count_shards,
    distribute,
    here,
    in_folder,
    look,
    run_parts,
)
from kinograph._repack import RepackOptions, to_repack_args
from kinograph._verify import Damage

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["export", "pack", "repack", "verify"]


def pack(  # noqa: PLR0913 (each is a keyword of its own)
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    address: str | None = "auto",
    tasks: int | None = None,
    cpus: int = 1,
    max_retries: int = 20,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[PackOptions],
) -> Packed:
    """Pack a recording into a new dataset with the workers of a Ray cluster.

    :param address: the cluster: ``"auto"`` for the one that this machine belongs to, ``"local"`` or ``None`` for the cores of
        this machine, or an address such as ``"ray://head:10001"``. If Ray is initialized already, that cluster is used.
    :param tasks: into how many tasks to divide the work; default: eight per worker, at most one per portion.
    :param cpus: CPUs of a task, which packs with as many threads, unless ``threads`` says otherwise.
    :param max_retries: how often a task is started again whose worker has died, or that could not read or write a file. Any
        other error ends the pack; what is finished stays for the next call.
    :param progress: called about once per second with the bytes of frames in finished portions, and in all.
    :param options: those of :func:`kinograph.pack`.
    """
    cpus = to_whole("cpus", cpus, least=1)
    options.setdefault("threads", cpus)
    # Paths stay as they are given, because the manifest names the recording's.
    work = Work(
        lambda: _core.count_portions(source, to_pack_args(options, "new")),
        lambda part: pack_part(source, target, part=part, **options).made,
        lambda: look(target),
    )
    return run_parts(
        work, lambda: commit_parts(target), How(address, tasks, cpus, max_retries, progress)
    )


def repack(  # noqa: PLR0913 (each is a keyword of its own)
    dataset: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    address: str | None = "auto",
    tasks: int | None = None,
    cpus: int = 1,
    max_retries: int = 20,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[RepackOptions],
) -> Packed:
    """Store a dataset with another plan in a new dataset, with the workers of a Ray cluster.

    The version is the one that :func:`kinograph.repack` makes with the same options and ``created``, bit for bit. The other
    arguments are those of :func:`pack`.

    :param options: those of :func:`kinograph.repack`.
    """
    cpus = to_whole("cpus", cpus, least=1)
    options.setdefault("threads", cpus)
    _refuse_unknown(options, RepackOptions)
    arguments = to_repack_args(options, "new")
    work = Work(
        lambda: _core.count_repack_portions(dataset, arguments),
        lambda part: _core.repack_part(dataset, target, arguments, part),
        lambda: look(target),
    )
    return run_parts(
        work, lambda: commit_parts(target), How(address, tasks, cpus, max_retries, progress)
    )


def export(  # noqa: PLR0913 (each is a keyword of its own)
    dataset: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: To,
    address: str | None = "auto",
    tasks: int | None = None,
    cpus: int = 1,
    max_retries: int = 20,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[ExportOptions],
) -> Exported:
    """Write a dataset in another tool's format, with the workers of a Ray cluster.

    The files are those of :func:`kinograph.export`, bit for bit. Formats whose files hold several episodes cannot be written
    by several workers and are refused; ``"act"``, ``"lerobot-v2.1"`` and ``"mcap"`` can. The other arguments are those of
    :func:`pack`, but ``progress`` is called with parts that are finished, and in all.

    :param options: those of :func:`kinograph.export`.
    """
    _refuse_unknown(options, ExportOptions)

    # Rows and the newest version are looked up where the dataset can be seen, once.
    def prepare() -> tuple[pathlib.Path | str, _core.ExportArgs]:
        return to_export_args(dataset, to, options)

    how = How(address, tasks, to_whole("cpus", cpus, least=1), max_retries, progress)
    with cluster(address):
        path, arguments = call(here(prepare), how.cpus)
        work = Work(
            lambda: _core.count_export_parts(path, arguments),
            lambda part: _core.export(path, target, {**arguments, "part": part}, None)[0],
            lambda: _core.export_parts_done(target),
        )
        return run_parts(work, lambda: to_exported(_core.commit_export(target)), how)


def verify(  # noqa: PLR0913 (each is a keyword of its own)
    path: str | os.PathLike[str],
    *,
    decode: bool = False,
    root: str | os.PathLike[str] | None = None,
    address: str | None = "auto",
    tasks: int | None = None,
    cpus: int = 1,
    max_retries: int = 20,
    progress: Callable[[int, int], object] | None = None,
) -> list[Damage]:
    """Compare every byte of a dataset's newest version with its hash, with the workers of a Ray cluster.

    The result is that of :func:`kinograph.verify`, except that with ``decode`` the statistics are not compared with the
    frames. The other arguments are those of :func:`pack`, but ``progress`` is called with parts that are finished, and in
    all.
    """
    how = How(address, tasks, to_whole("cpus", cpus, least=1), max_retries, progress)
    work = Work(
        lambda: count_shards(path),
        lambda part: _core.verify(path, decode, root, part),
    )
    with cluster(address):
        found = [place for places in distribute(in_folder(work), how) for place in places]
    # Damage of what is about all shards may be found by several parts.
    return [Damage(*place) for place in dict.fromkeys(found)]


def _refuse_unknown(options: Mapping[str, object], known: type) -> None:
    unknown = sorted(set(options) - set(known.__annotations__))
    if unknown:
        raise InvalidArgumentError(
            f"{unknown[0]!r} is not an option; these are: {', '.join(known.__annotations__)}"
        )
