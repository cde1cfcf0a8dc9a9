"""How requests are written: Python's words, robomimic's and LeRobot's become those of the core."""

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
    """Write a request of ``ds.samples({...})`` in the core's words."""
    if not (windows is None or isinstance(windows, Mapping)):
        raise InvalidArgumentError(
            f"windows is {windows!r}; give a dict of moments by stream, such as {{'actions': range(8)}}"
        )
    if not windows:
        raise InvalidArgumentError(
            f"no windows are asked for; name streams, such as {{{next(iter(dataset.streams), 'actions')!r}: [0.0]}}"
        )
    requests = [_to_window(key, request)._to_json(key) for key, request in windows.items()]
    if anchor is None:
        place: Any = _default_anchor(requests)
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
    words: dict[str, Any],
) -> dict[str, Any]:
    """Write robomimic's words in the core's: ``obs/…`` keys, and the others, of which the first is the anchor."""
    names = _to_names(dataset, keys)
    names = [name for name in names if not name.startswith("next_obs/")]
    others = [name for name in names if not name.startswith("obs/")]
    # The anchor is the actions, wherever they stand in the list; a recording without them has its own first key.
    others.sort(key=lambda name: name != "actions")
    words = {
        "dataset_keys": others,
        "obs_keys": [name.removeprefix("obs/") for name in names if name.startswith("obs/")],
        "seq_length": to_whole("seq_length", words["seq_length"], least=1),
        "frame_stack": to_whole("frame_stack", words["frame_stack"], least=1),
        "before": "edge" if words["pad_frame_stack"] else "drop",
        "after": "edge" if words["pad_seq_length"] else "drop",
        "masks": "off",
        "goal": "last" if words["goal"] else "none",
        "next_obs": "load" if words["next_obs"] else "leave",
    }
    request: dict[str, Any] = json.loads(_core.robomimic_request(dataset._core, json.dumps(words)))
    return request


def lerobot_request(
    dataset: Dataset,
    delta_timestamps: Mapping[str, Sequence[float]],
    keys: Sequence[str] | None,
    *,
    anchor: str | None,
    tolerance_s: float,
) -> dict[str, Any]:
    """Write LeRobot's ``delta_timestamps`` in the core's words."""
    if not isinstance(delta_timestamps, Mapping):
        raise InvalidArgumentError(
            f"delta_timestamps is {delta_timestamps!r}; give a dict of seconds by stream"
        )
    names = _to_names(dataset, keys)
    stream = anchor or next(iter(delta_timestamps), names[0])
    # Also says which streams there are, if this is none of them.
    rate = dataset[0][dataset.streams[stream].name].rate_hz
    if rate is None:
        raise InvalidArgumentError(
            f"`{stream}` has times of its own and no rate; ask with `windows={{...}}` in seconds, which needs none"
        )
    words = {
        "anchor": stream,
        "keys": names,
        "delta_timestamps": [
            (key, _to_seconds(f"delta_timestamps of `{key}`", deltas))
            for key, deltas in delta_timestamps.items()
        ],
        "fps": rate,
        "tolerance_s": to_number("tolerance_s", tolerance_s),
    }
    request: dict[str, Any] = json.loads(_core.lerobot_request(json.dumps(words)))
    return request


def to_selection(
    dataset: Dataset,
    split: str | Sequence[str] | None,
    episodes: Iterable[int | str] | None,
    conditions: str | None,
) -> dict[str, Any]:
    """Write a choice of episodes in the core's words."""
    splits = [split] if isinstance(split, str) else split
    if splits is not None:
        splits = [str(name) for name in to_list("split", splits, "names")]
        if not splits:
            raise InvalidArgumentError("split is an empty list; leave it out to take all episodes")
    if not (conditions is None or isinstance(conditions, str)):
        raise InvalidArgumentError(
            f"filter is {conditions!r}; give conditions as text, such as 'success and frames >= 100'"
        )
    return {
        "splits": splits or [],
        "episodes": None if episodes is None else _to_rows(dataset, episodes),
        "filter": conditions,
    }


# Which way of saying what a sample is takes which words; all others are robomimic's.
_WAYS = {
    "anchor": ("windows", "delta_timestamps"),
    "keys": ("delta_timestamps", "seq_length"),
    "tolerance_s": ("delta_timestamps",),
}


def check_words(ways: Mapping[str, bool], words: Mapping[str, bool]) -> None:
    """Refuse a sample that is described in two ways or in none, and words that would mean nothing in that way."""
    given = [way for way, said in ways.items() if said]
    if len(given) != 1:
        raise InvalidArgumentError(
            "say once what a sample is: by `windows`, by `delta_timestamps` or by `seq_length`"
        )
    (way,) = given
    for word, said in words.items():
        takers = _WAYS.get(word, ("seq_length",))
        if said and way not in takers:
            raise InvalidArgumentError(
                f"`{word}` goes with {' or '.join(f'`{taker}`' for taker in takers)}, not with `{way}`"
            )


def _to_window(key: str, request: WindowSpec) -> Window:
    if isinstance(request, Window):
        return request
    if isinstance(request, Sequence | np.ndarray) and not isinstance(request, str):
        # As in `stream[10:20]` and `stream[0.5:1.0]`: whole numbers count, floats are seconds.
        moments = list(request)
        if all(is_number(moment) for moment in moments):
            return Window(steps=moments)
        return Window(seconds=_to_seconds(f"window `{key}`", moments))
    raise InvalidArgumentError(
        f"window `{key}` is {request!r}; give a list of seconds (floats), a range of steps, or a kinograph.Window"
    )


def _default_anchor(requests: list[dict[str, Any]]) -> Any:  # noqa: ANN401 (a value of JSON)
    """Take the stream whose frames the steps count: `{"camera": [-0.1, 0.0], "action": range(8)}` means actions."""
    for kind in ("steps", "times_ns"):
        for request in requests:
            if kind in request["at"]:
                return {"stream": request["stream"]}
    return "episode"


def _refuse_steps(requests: list[dict[str, Any]]) -> None:
    for request in requests:
        if "steps" in request["at"]:
            raise InvalidArgumentError(
                f"window `{request['key']}` has steps such as {request['at']['steps'][:1]}, but the anchor is the episode, which has no "
                "neighbours; give seconds (floats), or Window(whole=True) or Window(last=True)"
            )


def _to_names(dataset: Dataset, keys: Sequence[str] | None) -> list[str]:
    if keys is None:
        return list(dataset.streams)
    names = [str(key) for key in to_list("keys", keys, "streams")]
    if not names:
        raise InvalidArgumentError("keys is an empty list; leave it out to take all streams")
    return names


def _to_rows(dataset: Dataset, episodes: Iterable[int | str]) -> list[int | str]:
    """Take rows, which may count from the end, or ids."""
    rows: list[int | str] = []
    for episode in to_list("episodes", episodes, "places or ids"):
        if isinstance(episode, str):
            rows.append(episode)
        elif is_number(episode) and -len(dataset) <= operator.index(episode) < len(dataset):
            rows.append(operator.index(episode) % len(dataset))
        elif is_number(episode):
            raise NotFoundError(f"no episode {episode}; the dataset has {len(dataset)}")
        else:
            raise InvalidArgumentError(f"episodes has {episode!r}; give places or ids")
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
