"""How a recording is read, and which part of it: what packing, linking and planning share."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kinograph import _core
from kinograph._arguments import to_list, to_number, to_text
from kinograph._errors import InvalidArgumentError


def to_source(  # noqa: PLR0913 (each is a keyword of its own)
    *,
    format: str | None,  # noqa: A002 (same name as in the CLI)
    mapping: str | os.PathLike[str] | None,
    rate_hz: float | None,
    streams: str | Iterable[str] | None,
    exclude: str | Iterable[str] | None,
    episodes: str | Iterable[int | str] | None,
    follow_links: bool,
    keep_dtype: bool,
) -> _core.SourceArgs:
    """Check how a recording is read."""
    return {
        "format": format,
        "mapping": mapping,
        "rate_hz": None if rate_hz is None else to_number("rate_hz", rate_hz),
        "streams": to_texts("streams", streams),
        "exclude": to_texts("exclude", exclude),
        "episodes": to_texts("episodes", episodes),
        "follow_links": follow_links,
        "keep_dtype": keep_dtype,
    }


def to_texts(name: str, given: str | Iterable[int | str] | None) -> list[str]:
    """Turn one or several patterns or episode numbers into a list of text."""
    if given is None:
        return []
    items = [given] if isinstance(given, str) else to_list(name, given, "names")
    if not items:
        raise InvalidArgumentError(f"{name} is empty; remove it to take everything")
    return [
        str(item)
        if isinstance(item, int | np.integer) and not isinstance(item, bool)
        else to_text(f"an item of {name}", item)
        for item in items
    ]


def refuse(options: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    """Refuse options that do not go with the source."""
    given = [name for name in names if not (options[name] is None or options[name] is False)]
    if given:
        shown = " and ".join(f"`{name}`" for name in given)
        raise InvalidArgumentError(f"{shown} cannot be combined with {what}")


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Tell a dataset from a recording."""
    # Only datasets are remote: recordings are files of this machine.
    return _core.to_url(os.fspath(path)) is not None or (pathlib.Path(path) / "versions").is_dir()


def to_rule(pattern: str, key: str, value: str) -> str:
    """Write a rule of a plan: the streams that match get this value of this key."""
    return f"[[stream]]\nmatch = {json.dumps(pattern)}\n{key} = {json.dumps(value)}"
