"""From the options of ``ds.samples`` to the request that the core reads: Kinograph's own, robomimic's and LeRobot's."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kinograph import _core
from kinograph._arguments import to_list, to_number, to_whole
from kinograph._errors import InvalidArgumentError, NotFoundError
from kinograph._samples import Window, WindowSpec
from kinograph._stream import is_number

if TYPE_CHECKING:
    from kinograph._dataset import Dataset


def to_request(
    dataset: Dataset,
    windows: Mapping[str, WindowSpec] | None,
    anchor: str | float | None,
) -> dict[str, Any]:
    """Turn ``ds.samples({...})`` into a request."""
    if not (windows is None or isinstance(windows, Mapping)):
        raise InvalidArgumentError(
            f"windows is {windows!r}; give a dict of offsets by stream, such as {{'actions': range(8)}}"
        )
    if not windows:
        raise InvalidArgumentError(
            f"windows is empty; request streams, such as {{{next(iter(dataset.streams), 'actions')!r}: [0.0]}}"
        )
    requests = [_to_window(key, request)._to_json(key) for key, request in windows.items()]
    if anchor is None:
        # The clock that the streams share; the core finds it, or asks.
        place: Any = "shared"
    elif anchor == "episode":
        place = "episode"
    elif isinstance(anchor, str):
        place = {"stream": anchor}
    else:
        place = {"rate_hz": _to_rate(anchor)}
    if place == "episode":
        _refuse_steps(requests)
    return {"anchor": place, "windows": requests}


def robomimic_request(
    dataset: Dataset,
    keys: Sequence[str] | None,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Turn robomimic's options into a request: ``obs/…`` keys, and the others, of which the first is the anchor."""
    names = _to_names(dataset, keys)
    names = [name for name in names if not name.startswith("next_obs/")]
    others = [name for name in names if not name.startswith("obs/")]
    # The anchor is the actions, wherever they stand in the list; a recording without them has its own first key.
    others.sort(key=lambda name: name != "actions")
    options = {
        "dataset_keys": others,
        "obs_keys": [name.removeprefix("obs/") for name in names if name.startswith("obs/")],
        "seq_length": to_whole("seq_length", given["seq_length"], least=1),
        "frame_stack": to_whole("frame_stack", given["frame_stack"], least=1),
        "before": "edge" if given["pad_frame_stack"] else "drop",
        "after": "edge" if given["pad_seq_length"] else "drop",
        "masks": "off",
        "goal": "last" if given["goal"] else "none",
        "next_obs": "load" if given["next_obs"] else "leave",
    }
    request: dict[str, Any] = json.loads(
        _core.robomimic_request(dataset._core, json.dumps(options))
    )
    return request


def lerobot_request(
    dataset: Dataset,
    delta_timestamps: Mapping[str, Sequence[float]],
    keys: Sequence[str] | None,
    *,
    anchor: str | None,
    tolerance_s: float,
) -> dict[str, Any]:
    """Turn LeRobot's ``delta_timestamps`` into a request."""
    if not isinstance(delta_timestamps, Mapping):
        raise InvalidArgumentError(
            f"delta_timestamps is {delta_timestamps!r}; give a dict of seconds by stream"
        )
    options = {
        "anchor": anchor,
        "keys": _to_names(dataset, keys),
        "delta_timestamps": [
            (key, _to_seconds(f"delta_timestamps of `{key}`", deltas))
            for key, deltas in delta_timestamps.items()
        ],
        "tolerance_s": to_number("tolerance_s", tolerance_s),
    }
    request: dict[str, Any] = json.loads(_core.lerobot_request(dataset._core, json.dumps(options)))
    return request


def to_selection(
    dataset: Dataset,
    split: str | Sequence[str] | None,
    episodes: Iterable[int | str] | None,
    conditions: str | None,
) -> dict[str, Any]:
    """Turn the choice of episodes into a selection."""
    splits = [split] if isinstance(split, str) else split
    if splits is not None:
        splits = [str(name) for name in to_list("split", splits, "names")]
        if not splits:
            raise InvalidArgumentError("split is an empty list; omit it to select all episodes")
    if not (conditions is None or isinstance(conditions, str)):
        raise InvalidArgumentError(
            f"filter is {conditions!r}; give conditions as text, such as 'success and frames >= 100'"
        )
    return {
        "splits": splits or [],
        "episodes": None if episodes is None else _to_rows(dataset, episodes),
        "filter": conditions,
    }


# Which options go with which description of a sample; all others are robomimic's.
_WAYS = {
    "anchor": ("windows", "delta_timestamps"),
    "keys": ("delta_timestamps", "seq_length"),
    "tolerance_s": ("delta_timestamps",),
}


def check_options(ways: Mapping[str, bool], options: Mapping[str, bool]) -> None:
    """Refuse a sample that is described in two ways or in none, and options that do not go with that way."""
    given = [way for way, is_given in ways.items() if is_given]
    if len(given) != 1:
        raise InvalidArgumentError(
            "give exactly one of `windows=`, `delta_timestamps=` or `seq_length=`"
        )
    (way,) = given
    for option, is_given in options.items():
        takers = _WAYS.get(option, ("seq_length",))
        if is_given and way not in takers:
            raise InvalidArgumentError(
                f"`{option}` goes with {' or '.join(f'`{taker}`' for taker in takers)}, not with `{way}`"
            )


def _to_window(key: str, request: WindowSpec) -> Window:
    if isinstance(request, Window):
        return request
    # As in `stream[10:20]` and `stream[0.5:1.0]`: integers count frames, floats are seconds.
    if is_number(request):
        step = operator.index(request)
        if step > 0:
            raise InvalidArgumentError(
                f"window `{key}` is {step}: write range({step}) for {step} frames from the anchor on, or [{step}] for the "
                f"frame {step} after it"
            )
        return Window(steps=[step], single=True)
    if isinstance(request, float | np.floating):
        return Window(seconds=[float(request)], single=True)
    if isinstance(request, Sequence | np.ndarray) and not isinstance(request, str):
        offsets = list(request)
        are_steps = [is_number(offset) for offset in offsets]
        if all(are_steps):
            return Window(steps=offsets)
        seconds = _to_seconds(f"window `{key}`", offsets)
        if any(are_steps):
            raise InvalidArgumentError(
                f"window `{key}` mixes integers, which count frames, and floats, which are seconds: {offsets!r}; "
                f"write {seconds!r} for seconds"
            )
        return Window(seconds=seconds)
    raise InvalidArgumentError(
        f"window `{key}` is {request!r}; give a list of seconds (floats), a range of frames, or a kinograph.Window"
    )


def _refuse_steps(requests: list[dict[str, Any]]) -> None:
    for request in requests:
        if "steps" in request["at"]:
            raise InvalidArgumentError(
                f"window `{request['key']}` has steps such as {request['at']['steps'][:1]}, but the anchor is the episode; "
                "give seconds (floats), or Window(whole=True) or Window(last=True)"
            )


def _to_names(dataset: Dataset, keys: Sequence[str] | None) -> list[str]:
    if keys is None:
        return [name for name, stream in dataset.streams.items() if stream.variant_of is None]
    names = [str(key) for key in to_list("keys", keys, "streams")]
    if not names:
        raise InvalidArgumentError("keys is an empty list; omit it to request all streams")
    return names


def _to_rows(dataset: Dataset, episodes: Iterable[int | str]) -> list[int | str]:
    """Take indices, which may count from the end, or ids."""
    rows: list[int | str] = []
    for episode in to_list("episodes", episodes, "indices or ids"):
        if isinstance(episode, str):
            rows.append(episode)
        elif is_number(episode) and -len(dataset) <= operator.index(episode) < len(dataset):
            rows.append(operator.index(episode) % len(dataset))
        elif is_number(episode):
            raise NotFoundError(f"no episode {episode}; the dataset has {len(dataset)}")
        else:
            raise InvalidArgumentError(f"episodes has {episode!r}; give indices or ids")
    return rows


def _to_rate(anchor: object) -> float:
    rate = to_number("anchor", anchor)
    if not 1e-6 <= rate <= 1e9:
        raise InvalidArgumentError(
            f"anchor is {anchor!r}; give a stream, 'episode', or a rate of 1e-6 to 1e9 Hz"
        )
    return rate


def _to_seconds(place: str, moments: object) -> list[float]:
    return [to_number(f"{place}: a time", moment) for moment in to_list(place, moments, "seconds")]
