"""The arguments of robomimic's ``SequenceDataset``, by place and by name.

0.3          hdf5_path, obs_keys, dataset_keys, frame_stack, …
0.4, 0.5     hdf5_path, obs_keys, action_keys, dataset_keys, action_config, frame_stack, …, lang, demo_limit
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from kinograph._stream import is_number


def _older(  # noqa: PLR0913, PLR0917 (robomimic's own)
    hdf5_path: Any,  # noqa: ANN401
    obs_keys: Any,  # noqa: ANN401
    dataset_keys: Any,  # noqa: ANN401
    frame_stack: int = 1,
    seq_length: int = 1,
    pad_frame_stack: bool = True,
    pad_seq_length: bool = True,
    get_pad_mask: bool = False,
    goal_mode: str | None = None,
    hdf5_cache_mode: str | None = None,
    hdf5_use_swmr: bool = True,
    hdf5_normalize_obs: bool = False,
    filter_by_attribute: str | None = None,
    load_next_obs: bool = True,
) -> None:
    """Have the arguments of robomimic 0.3."""


_OLDER = inspect.signature(_older)


def _to_newer() -> inspect.Signature:
    """Put the arguments of robomimic 0.4 and 0.5 where they stand there."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    listed = list(_OLDER.parameters.values())
    listed.insert(2, inspect.Parameter("action_keys", kind))
    listed.insert(4, inspect.Parameter("action_config", kind))
    listed += [inspect.Parameter(name, kind, default=None) for name in ("lang", "demo_limit")]
    return inspect.Signature(listed)


_NEWER = _to_newer()


def is_newer(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Tell which version's arguments these are: the fourth by place is a number in the older one, and keys in the newer."""
    if any(name in options for name in ("action_keys", "action_config", "lang", "demo_limit")):
        return True
    return len(arguments) > 1 and not is_number(arguments[1])


def to_named(newer: bool, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Give every argument its name, and missing ones their defaults."""
    signature = _NEWER if newer else _OLDER
    try:
        bound = signature.bind(*arguments, **options)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        raise TypeError(f"SequenceDataset: {error}; it takes {names}") from None
    bound.apply_defaults()
    return bound.arguments
