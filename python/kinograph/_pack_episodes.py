"""Packing episodes from Python: any iterable of dicts, so that a new source takes twenty lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from kinograph._defects import Defect, OnDefect, Packed
from kinograph._errors import CorruptDataError, InvalidArgumentError
from kinograph._writer import Writer

if TYPE_CHECKING:
    from kinograph._writer import Mode

_POLICIES = ("error", "drop-episode", "keep")

# An error shows the first defects only.
_LISTED = 10


def pack_episodes(  # noqa: PLR0913 (each is a keyword of its own)
    episodes: Iterable[Mapping[str, Any]],
    target: str | os.PathLike[str],
    *,
    mode: Mode,
    rate_hz: float | None,
    on_defect: OnDefect,
    prefix: str,
    progress: Callable[[int, int], object] | None,
    writer_options: Mapping[str, Any],
) -> Packed:
    """Write every episode in turn and commit; see :func:`kinograph.pack`."""
    if on_defect not in _POLICIES:
        raise InvalidArgumentError(
            f"on_defect={on_defect!r} is not a policy; use one of {', '.join(_POLICIES)}"
        )
    total = len(episodes) if isinstance(episodes, Sized) else 0
    defects: list[Defect] = []
    settings = {
        "source": "episodes from Python",
        "rate_hz": str(rate_hz),
        "prefix": prefix,
        "on_defect": on_defect,
    }
    with Writer(target, mode=mode, settings=settings, **writer_options) as writer:
        resumed = writer.resumed
        is_kept = bool(resumed)
        for number, episode in enumerate(_dicts(episodes)):
            # The position in the iterable, so that an episode without an id keeps its name when others are skipped.
            given = episode.get("id")
            name = f"{prefix}{f'episode_{number}' if given is None else given}"
            if name not in resumed:
                found = _find_defects(name, episode.get("streams"), on_defect)
                if found and on_defect == "error":
                    lines = "\n".join(f"  {defect.place}: {defect.what}" for defect in found)
                    raise CorruptDataError(
                        f"episode {number} has defects; nothing was committed\n{lines}\n"
                        'fix it, or pass on_defect="drop-episode" or "keep"'
                    )
                defects += found
                if not (found and on_defect == "drop-episode"):
                    is_kept = True
                    _add(writer, number, {"rate_hz": rate_hz, **episode, "id": name})
            if progress is not None:
                progress(number + 1, max(total, number + 1))
        if defects and not is_kept:
            raise _all_dropped(defects)
        return Packed(*writer.commit("pack episodes from Python"), defects)


def _dicts(episodes: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for number, episode in enumerate(episodes):
        if not isinstance(episode, Mapping) or "streams" not in episode:
            raise InvalidArgumentError(
                f"episode {number} is {type(episode).__name__}; it must be a dict with `streams` and the other keywords of Writer.add_episode"
            )
        yield episode


def _all_dropped(defects: list[Defect]) -> CorruptDataError:
    count = len({defect.episode for defect in defects})
    whole = (
        "the only episode has defects and was"
        if count == 1
        else f"all {count} episodes have defects and were"
    )
    lines = [f"  {defect.place}: {defect.what}" for defect in defects]
    more = [f"  and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return CorruptDataError(
        "\n".join([f"{whole} dropped; nothing was written", *lines[:_LISTED], *more])
    )


def _add(writer: Writer, number: int, episode: Mapping[str, Any]) -> None:
    arguments = dict(episode)
    if arguments.get("rate_hz") is None or arguments.get("timestamps_ns") is not None:
        arguments.pop("rate_hz", None)
    try:
        writer.add_episode(arguments.pop("streams"), **arguments)
    except TypeError as error:
        raise InvalidArgumentError(f"episode {number}: {error}") from error


def _find_defects(name: str, streams: object, on_defect: OnDefect) -> list[Defect]:
    """Find NaN in values; in depth images NaN is a valid hole."""
    if not isinstance(streams, Mapping):
        return []
    dropped = on_defect == "drop-episode"
    defects = []
    for stream, values in streams.items():
        if isinstance(values, list | Mapping) or "depth" in str(stream).lower():
            continue
        array = np.asarray(values)
        if array.dtype.kind != "f" or array.size == 0:
            continue
        frames = np.isnan(array).reshape(len(array), -1).any(axis=1)
        if frames.any():
            what = f"contains NaN in {int(frames.sum())} of {len(frames)} frames, first in frame {int(frames.argmax())}"
            place = f"{name}, stream `{stream}`"
            action = "dropped" if dropped else "kept"
            defects.append(Defect(place, what, name, action, dropped))
    return defects
