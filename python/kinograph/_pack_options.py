"""How a recording is packed: what packing it whole and in parts share, and of it what repacking shares too."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from kinograph import _core
from kinograph._arguments import U64, to_whole
from kinograph._defects import OnDefect
from kinograph._source import to_source
from kinograph._writer import MEMORY, SHARD_SIZE, Mode, Plan, to_options


class WriterOptions(TypedDict, total=False):
    """How a dataset is written: what packing and repacking share."""

    plan: Plan
    quality: int | None
    shard_size: int | str
    memory: int | str
    threads: int | None
    attributes: Mapping[str, Any] | None
    created: str | datetime.datetime | None


class PackOptions(WriterOptions, total=False):
    """The options of :func:`kinograph.pack` for a recording on disk; each has the default that it has there."""

    rate_hz: float | None
    format: str | None
    mapping: str | os.PathLike[str] | None
    streams: str | Iterable[str] | None
    exclude: str | Iterable[str] | None
    episodes: str | Iterable[int | str] | None
    follow_links: bool
    keep_dtype: bool
    on_defect: OnDefect
    seed: int
    prefix: str


def to_writer_args(options: WriterOptions, mode: Mode) -> _core.Options:
    """Check how a dataset is written, and convert it for the core."""
    return to_options(
        mode=mode,
        plan=options.get("plan"),
        quality=options.get("quality"),
        shard_size=options.get("shard_size", SHARD_SIZE),
        memory=options.get("memory", MEMORY),
        threads=options.get("threads"),
        attributes=options.get("attributes"),
        settings={},
        created=options.get("created"),
    )


def to_pack_args(options: PackOptions, mode: Mode) -> _core.PackArgs:
    """Check the options and convert them for the core."""
    return {
        "writer": to_writer_args(options, mode),
        "source": to_source(
            format=options.get("format"),
            mapping=options.get("mapping"),
            rate_hz=options.get("rate_hz"),
            streams=options.get("streams"),
            exclude=options.get("exclude"),
            episodes=options.get("episodes"),
            follow_links=options.get("follow_links", False),
            keep_dtype=options.get("keep_dtype", False),
        ),
        "on_defect": options.get("on_defect", "error"),
        "seed": to_whole("seed", options.get("seed", 0), most=U64),
        "prefix": options.get("prefix", ""),
        "link": None,
    }
