"""The reference for windows: slow, obvious, and without a line in common with them.

episode    {stream: Stream(times_ns, values, clock, period_ns)}
request    the JSON form, as a dict:
           {"anchor": {"stream": "actions"} | {"rate_hz": 30.0} | "episode",
            "skip_first": 0, "skip_last": 0,
            "windows": [{"key": "joints", "stream": "obs/joints",
                         "at": {"steps": [-1, 0]} | {"times_ns": [0, 20000000]} | "all" | "last",
                         "resolve": {"auto" | "nearest" | "hold" | "linear" | "slerp": {"max_staleness_ns": None}},
                         "latency_ns": 0, "before": "edge" | "zero" | "drop", "after": "edge" | "zero" | "drop",
                         "stack": "stacked" | "single"}],
            "masks": "is_pad" | "pad_mask" | "octo" | "act" | "off"}
sample     {key: array, mask: array}; text is a list of str, one str where the window is single

For every offset of every window of every anchor, all frames of the stream are looked at. Times are Python's integers.
Of a window, only key, stream and at are needed; the defaults are auto without a limit (hold for text, nearest for all
else), no latency, edge, stacked.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

# Two times at most this far apart are one instant, wherever times are compared: rounding never moves a frame.
SAME_INSTANT_NS = 1000

REAL, BEFORE, AFTER, STALE = "real", "before", "after", "stale"


class Stream(NamedTuple):
    """The frames of one stream in one episode."""

    times_ns: Sequence[int]
    values: Any
    # Streams with equal clocks are on one clock.
    clock: object
    # Of a regular clock; None where each frame has its own time.
    period_ns: Fraction | None


Episode = Mapping[str, Stream]


class Found(NamedTuple):
    """What an offset comes to: a frame, or a blend of two, and whether it is real."""

    frame: int
    other: int | None
    weight: float
    state: str
    # The pad policy that applies where it is not real: "before" or "after".
    side: str


def explicit(times_ns: Sequence[int], values: Any) -> Stream:
    """Make a stream whose frames have their own times."""
    times = [int(time) for time in times_ns]
    return Stream(times, values, ("explicit", tuple(times)), None)


def regular(rate_hz: float, start_ns: int, values: Any) -> Stream:
    """Make a stream of a fixed rate."""
    period = period_ns(rate_hz)
    times = [start_ns + floor(index * period) for index in range(len(values))]
    return Stream(times, values, ("regular", start_ns, period, len(values)), period)


def period_ns(rate_hz: float) -> Fraction:
    """Find the period of a rate, as the simplest fraction."""
    return Fraction(10**9) / Fraction(rate_hz).limit_denominator(1_000_000)


def floor(number: Fraction) -> int:
    return number.numerator // number.denominator


def samples(episodes: Sequence[Episode], request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give all samples of all episodes, in order."""
    return [
        read(episode, request, anchor)
        for episode in episodes
        for anchor in eligible(episode, request)
    ]


def eligible(episode: Episode, request: Mapping[str, Any]) -> list[int]:
    """List the anchors of an episode that are samples."""
    count = len(anchor_times(episode, request))
    first = request.get("skip_first", 0)
    end = count - request.get("skip_last", 0)
    return [
        anchor
        for anchor in range(first, end)
        if not any(is_dropped(episode, request, window, anchor) for window in request["windows"])
    ]


def is_dropped(
    episode: Episode, request: Mapping[str, Any], window: Mapping[str, Any], anchor: int
) -> bool:
    if "drop" not in (window.get("before"), window.get("after")):
        return False
    return any(
        found.state != REAL and window.get(found.side, "edge") == "drop"
        for found in find_all(episode, request, window, anchor)
    )


def read(episode: Episode, request: Mapping[str, Any], anchor: int) -> dict[str, Any]:
    """Give the sample of one anchor."""
    sample, padded = {}, {}
    for window in request["windows"]:
        stream = episode[window["stream"]]
        found = find_all(episode, request, window, anchor)
        values = [value_of(stream, window, one) for one in found]
        key = window["key"]
        if window.get("stack", "stacked") == "single":
            (sample[key],) = values
        else:
            sample[key] = values if is_text(stream) else np.stack(values)
            padded[key] = np.array([one.state != REAL for one in found])
    return sample | masks(request, padded)


def anchor_times(episode: Episode, request: Mapping[str, Any]) -> list[int]:
    """List the times of all anchors of an episode."""
    start = min(stream.times_ns[0] for stream in episode.values())
    end = max(stream.times_ns[-1] for stream in episode.values())
    anchor = request["anchor"]
    if anchor == "episode":
        return [start]
    if "stream" in anchor:
        return list(episode[anchor["stream"]].times_ns)
    period = period_ns(anchor["rate_hz"])
    times: list[int] = []
    while start + floor(len(times) * period) <= end + SAME_INSTANT_NS:
        times.append(start + floor(len(times) * period))
    return times


def find_all(
    episode: Episode, request: Mapping[str, Any], window: Mapping[str, Any], anchor: int
) -> list[Found]:
    """Find the frames of one window at one anchor."""
    stream = episode[window["stream"]]
    at = window["at"]
    last = len(stream.times_ns) - 1
    if at == "all":
        return [real(frame) for frame in range(last + 1)]
    if at == "last":
        return [real(last)]
    if "from_end" in at:
        return [real(max(0, last - at["from_end"]))]
    now = anchor_times(episode, request)[anchor] + window.get("latency_ns", 0)
    resolve = window.get("resolve")
    if "times_ns" in at:
        return [find(stream, now + offset, resolve) for offset in at["times_ns"]]
    if is_on_anchors_clock(episode, request, window):
        return [find_step(anchor + step, last) for step in at["steps"]]
    return [count_from(stream, find(stream, now, resolve), step) for step in at["steps"]]


def count_from(stream: Stream, here: Found, step: int) -> Found:
    """Count frames of a stream from the one that it has at the anchor.

    Where it has none there, what stands for that one stands for all; so does the one frame of a constant.
    """
    if here.state in (BEFORE, AFTER) or is_constant(stream):
        return here
    there = find_step(here.frame + step, len(stream.times_ns) - 1)
    # If the frame at the anchor is stale, so are its neighbours.
    return there if there.state != REAL else here._replace(frame=there.frame)


def real(frame: int) -> Found:
    return Found(frame, None, 0.0, REAL, "")


def is_on_anchors_clock(
    episode: Episode, request: Mapping[str, Any], window: Mapping[str, Any]
) -> bool:
    """Tell whether the anchor's own number is the frame at the anchor, without any time."""
    anchor = request["anchor"]
    return (
        isinstance(anchor, Mapping)
        and "stream" in anchor
        and episode[anchor["stream"]].clock == episode[window["stream"]].clock
        and window.get("latency_ns", 0) == 0
    )


def find_step(step: int, last: int) -> Found:
    """Clamp a step to what there is."""
    if step < 0:
        return Found(0, None, 0.0, BEFORE, "before")
    if step > last:
        return Found(last, None, 0.0, AFTER, "after")
    return real(step)


def find(stream: Stream, time: int, resolve: Mapping[str, Any] | None) -> Found:
    """Find what a stream has at a time."""
    ((mode, options),) = (resolve or {"auto": {}}).items()
    if mode == "auto":
        mode = "hold" if is_text(stream) else "nearest"
    limit = (options or {}).get("max_staleness_ns")
    times = stream.times_ns
    if is_before(stream, time, mode, limit):
        return Found(0, None, 0.0, BEFORE, "before")
    if is_after(stream, time, mode, limit):
        return Found(len(times) - 1, None, 0.0, AFTER, "after")
    if mode == "hold" and time + SAME_INSTANT_NS >= times[0]:
        frame = last_until(times, time + SAME_INSTANT_NS)
    else:
        frame = 0 if mode == "hold" else nearest(times, time)
    distance = time - times[frame] if mode == "hold" else abs(times[frame] - time)
    if limit is not None and distance > limit + SAME_INSTANT_NS:
        return Found(frame, None, 0.0, STALE, "after" if times[frame] < time else "before")
    is_between = times[0] < time < times[-1] and distance > SAME_INSTANT_NS
    if mode in ("linear", "slerp") and is_between:
        low = last_until(times, time)
        high = low + 1
        weight = (time - times[low]) / (times[high] - times[low])
        return Found(low, high, weight, REAL, "")
    return real(frame)


def nearest(times: Sequence[int], time: int) -> int:
    """Find the nearest frame: of two that are as near the earlier, of several at one time the last.

    A target in the middle of two frames is off by a nanosecond where a period was rounded, so distances are compared as
    times are, unless the target is on a frame: that is the one.
    """
    stamps = np.asarray(times, dtype=np.int64)
    neighbours = [int(time) for time in (*stamps[stamps <= time][-1:], *stamps[stamps > time][:1])]
    least = min(abs(at - time) for at in neighbours)
    as_near = least if least <= SAME_INSTANT_NS else least + SAME_INSTANT_NS
    return last_until(times, min(at for at in neighbours if abs(at - time) <= as_near))


def last_until(times: Sequence[int], time: int) -> int:
    """Find the last frame that is not after a time."""
    return int(np.flatnonzero(np.asarray(times, dtype=np.int64) <= time)[-1])


def is_before(stream: Stream, time: int, mode: str, limit: int | None) -> bool:
    first = stream.times_ns[0]
    if is_constant(stream):
        return limit is not None and time < first - limit - SAME_INSTANT_NS
    if mode == "hold":
        return time < first - SAME_INSTANT_NS
    reach = floor(mean_period(stream) / 2) if limit is None else limit
    return time < first - reach - SAME_INSTANT_NS


def is_after(stream: Stream, time: int, mode: str, limit: int | None) -> bool:
    last = stream.times_ns[-1]
    if limit is not None:
        return time > last + limit + SAME_INSTANT_NS
    if is_constant(stream):
        return False
    if mode == "hold":
        end = last + floor(mean_period(stream)) - SAME_INSTANT_NS
        return time > last + SAME_INSTANT_NS and time >= end
    return time > last + floor(mean_period(stream) / 2) + SAME_INSTANT_NS


def is_constant(stream: Stream) -> bool:
    """Tell whether all frames have one time of their own: then nothing tells when the next one was due."""
    return mean_period(stream) == 0


def mean_period(stream: Stream) -> Fraction:
    """Give the time between frames; 0 where nothing tells."""
    if stream.period_ns is not None:
        return stream.period_ns
    times = stream.times_ns
    return Fraction(times[-1] - times[0], max(1, len(times) - 1))


def value_of(stream: Stream, window: Mapping[str, Any], found: Found) -> Any:
    """Give the value of what was found, or the one that pads."""
    value = stream.values[found.frame]
    if found.state != REAL and window.get(found.side, "edge") == "zero":
        return "" if is_text(stream) else np.zeros_like(value)
    if found.other is None:
        return value
    low, high = (np.asarray(each, dtype=np.float64) for each in (value, stream.values[found.other]))
    blend = slerp if "slerp" in window["resolve"] else lerp
    return blend(low, high, found.weight).astype(np.asarray(value).dtype)


def lerp(low: np.ndarray, high: np.ndarray, weight: float) -> np.ndarray:
    return low + (high - low) * weight


def slerp(low: np.ndarray, high: np.ndarray, weight: float) -> np.ndarray:
    """Turn from one quaternion to the other by the shorter way."""
    if low.ndim > 1:
        return np.stack([slerp(*pair, weight) for pair in zip(low, high, strict=True)])
    if low @ high < 0:
        high = -high
    angle = np.arccos(min(1.0, low @ high / np.linalg.norm(low) / np.linalg.norm(high)))
    if angle < 1e-6:
        blended = lerp(low, high, weight)
        return blended / np.linalg.norm(blended)
    return (np.sin((1 - weight) * angle) * low + np.sin(weight * angle) * high) / np.sin(angle)


def masks(request: Mapping[str, Any], padded: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Name the masks of the stacked windows, as one of the dialects has them."""
    dialect = request.get("masks", "is_pad")
    stacked = [window for window in request["windows"] if window["key"] in padded]
    if dialect == "is_pad":
        return {f"{key}_is_pad": mask for key, mask in padded.items()}
    if dialect == "pad_mask":
        anchors = [each for each in stacked if each["stream"] == request["anchor"]["stream"]]
        return {"pad_mask": ~padded[anchors[0]["key"]][:, None]}
    if dialect == "act":
        ahead = [each for each in stacked if reaches_ahead(each)]
        return {"is_pad": padded[ahead[0]["key"]]}
    if dialect == "octo":
        ahead = [each["key"] for each in stacked if reaches_ahead(each)]
        behind = [key for key in padded if key not in ahead]
        named = {f"{key}_pad_mask": ~padded[key] for key in ahead}
        return named | ({"observation.timestep_pad_mask": ~padded[behind[0]]} if behind else {})
    return {}


def reaches_ahead(window: Mapping[str, Any]) -> bool:
    at = window["at"]
    if isinstance(at, str):
        return at == "all"
    return any(offset > 0 for offset in at.get("steps", at.get("times_ns")))


def is_text(stream: Stream) -> bool:
    return isinstance(stream.values[0], str)
