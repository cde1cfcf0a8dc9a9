"""The arms: how a recording is stored, and what a policy then trains on.

    raw                lossless
    actions5           every action within a bound of half a step of 5 bits of its range
    actions5+events    the same, but exact around the gripper's events
    seen5              the observations likewise, the actions exact
    episodes/2         every second episode;  frames/2: every second frame, with the actions of all

Kinograph stores every arm with a plan and reads it back: nothing is rounded here, except live observations.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

import numpy as np
import numpy.typing as npt

import kinograph

Floats = npt.NDArray[np.float64]
FIRST = [
    "raw",
    "actions8",
    "actions5",
    "actions4",
    "actions3",
    "actions4+events",
    "actions3+events",
]
FIRST += ["seen8", "seen5", "seen4", "seen3", "episodes/2"]
SECOND = ["actions6", "seen6", "seen4+events", "seen3+events", "frames/2"]
ARMS = FIRST + SECOND
#: What is packed and measured, and not trained on.
STORED_ONLY = ["actions8+events", "seen8+events", "seen6+events"]
NAME = re.compile(r"(actions|seen)(\d)(\+events)?")
#: Every second one.
THIN = 2


@dataclasses.dataclass(frozen=True)
class Recording:
    """A recording of a task, which of its streams a policy sees, and which element of the actions is the gripper."""

    path: pathlib.Path
    rate_hz: float
    seen: tuple[str, ...]
    gripper: int
    #: How many of the training episodes are used: so many that success is between 0 and 1.
    episodes: int


@dataclasses.dataclass(frozen=True)
class Episode:
    """What a policy sees, what it should do, and which frames are near an event of the gripper."""

    seen: Floats
    actions: Floats
    near: npt.NDArray[np.bool_]


def bounds(frames: Floats, bits: int) -> Floats:
    """Give for each element half a step of so many bits of its range."""
    return np.ptp(frames, axis=0) / 2 ** (bits + 1)


def to_rule(stream: str, limits: Floats, events: bool) -> dict[str, object]:
    """Write a rule of a plan."""
    # All parameters of a codec take at most 256 characters: the bounds of many joints get two digits.
    digits = 17 if len(limits) < 10 else 2
    bound = "/".join(f"{limit:.{digits}g}x1" for limit in limits.tolist())
    rule: dict[str, object] = {"match": stream, "bound": f"abs({bound})"}
    return rule | ({"protect": ["gripper"]} if events else {})


class Arms:
    """Stores a recording once per arm, below a folder."""

    def __init__(self, recording: Recording, folder: pathlib.Path) -> None:
        self.recording = recording
        self._folder = folder
        self.raw = self.open("raw")
        found = [episode for episode in self.raw if "train" in episode.splits]
        self._ids = [episode.id for episode in found[: recording.episodes]]
        self._held_out = [episode.id for episode in self.raw if "valid" in episode.splits]
        self._ranges = {
            stream: np.concatenate([episode[stream][:] for episode in self.raw])
            for stream in ("actions", *recording.seen)
        }

    def plan(self, arm: str) -> dict[str, list[dict[str, object]]]:
        """Give the plan of an arm. The events are detected in every arm, so that all know where they are."""
        event = {"name": "gripper", "stream": "actions", "detect": "transition"}
        plan: dict[str, list[dict[str, object]]] = {
            "event": [event | {"elements": [self.recording.gripper]}],
            "stream": [],
        }
        named = NAME.fullmatch(arm)
        if named:
            for stream in self._rounded(arm):
                limits = bounds(self._ranges[stream], int(named[2]))
                plan["stream"].append(to_rule(stream, limits, named[3] is not None))
        return plan

    def open(self, arm: str) -> kinograph.Dataset:
        """Open an arm's dataset, which is packed the first time."""
        path = self._folder / f"{arm.replace('/', '-')}.kino"
        if not path.exists():
            partial = path.with_suffix(".partial")
            streams = ["actions", *self.recording.seen]
            kinograph.pack(
                self.recording.path,
                partial,
                mode="overwrite",
                rate_hz=self.recording.rate_hz,
                streams=streams,
                plan=self.plan(arm),
            )
            partial.rename(path)
        return kinograph.open(path)

    def _read(self, dataset: kinograph.Dataset, ids: list[str]) -> list[Episode]:
        episodes = []
        for name in ids:
            episode = dataset[name]
            seen = np.concatenate([episode[one][:] for one in self.recording.seen], axis=1)
            near = np.zeros(len(seen), bool)
            times = np.arange(len(seen)) / self.recording.rate_hz
            for span in self.raw[name].protected:
                near |= (times >= span.start_s) & (times <= span.end_s)
            episodes.append(Episode(seen, episode["actions"][:], near))
        return episodes

    def train(self, arm: str) -> list[Episode]:
        """Read the training episodes as an arm has them."""
        stored = arm if NAME.fullmatch(arm) else "raw"
        every = THIN if arm == "episodes/2" else 1
        return self._read(self.open(stored), self._ids[::every])

    def held_out(self) -> list[Episode]:
        """Read the held-out episodes without loss."""
        return self._read(self.raw, self._held_out)

    def frame_bytes(self, arm: str, of: str = "raw") -> float:
        """Give the stored bytes per frame of the streams that another arm rounds, or of all; thinning stores nothing else."""
        share = 1 / THIN if arm.endswith("/2") else 1.0
        dataset = self.open(arm if NAME.fullmatch(arm) else "raw")
        frames = sum(episode.frames for episode in dataset)
        return share * sum(dataset.streams[name].bytes for name in self._rounded(of)) / frames

    def _rounded(self, arm: str) -> tuple[str, ...]:
        named = NAME.fullmatch(arm)
        if not named:
            return ("actions", *self.recording.seen)
        return ("actions",) if named[1] == "actions" else self.recording.seen

    def distance(self, arm: str) -> float:
        """Give how far stored frames are from raw ones, in standard deviations: the root of the mean square over all elements."""
        if not NAME.fullmatch(arm):
            return 0.0
        stored, raw = (
            np.concatenate([np.hstack([one.seen, one.actions]) for one in self.train(name)])
            for name in (arm, "raw")
        )
        scale = raw.std(axis=0)
        return float(np.sqrt(np.mean(((stored - raw)[:, scale > 0] / scale[scale > 0]) ** 2)))

    def rounding(self, bits: int) -> Floats:
        """Give the step to which a live observation is rounded, per element; 0 for goals, which stay as they are.

        It is twice the bound. The codec mostly rounds to the same multiples; where that is smaller it takes a finer step, or a
        constant for an episode in which an element stays within the bound.
        """
        limits = np.concatenate([bounds(self._ranges[one], bits) for one in self.recording.seen])
        raw = self.train("raw")
        constant = np.all([np.ptp(one.seen, axis=0) == 0 for one in raw], axis=0)
        return np.where(constant, 0.0, 2 * limits)

    def on_grid(self, bits: int) -> float:
        """Give the share of stored values that a live observation would be rounded to as well."""
        steps = self.rounding(bits)
        same = [
            np.abs(stored.seen - to_grid(raw.seen, steps)) <= 1e-6 * steps + 1e-12
            for stored, raw in zip(self.train(f"seen{bits}"), self.train("raw"), strict=True)
        ]
        return float(np.concatenate(same)[:, steps > 0].mean())


def to_grid(values: Floats, steps: Floats) -> Floats:
    """Round to multiples of the steps; elements with step 0 are unchanged."""
    safe = np.where(steps > 0, steps, 1.0)
    return np.where(steps > 0, np.round(values / safe) * safe, values)
