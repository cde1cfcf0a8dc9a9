"""Rollouts of PushT: worker processes step and render, the caller does the inference for all of them at once.

Workers and caller share arrays: the last two images and positions of every environment, the actions to take, and what came
of it. A rollout has at most 300 steps; it succeeds once more than 95 % of the goal is covered.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_STEPS, EXECUTED, SIDE = 300, 8, 96
Array = npt.NDArray[Any]
#: Where each round trip of live frames comes from: an arm, or none.
Live = Callable[[str], Callable[[Array], Array]]


@dataclasses.dataclass(frozen=True)
class Shared:
    """What workers and caller share."""

    images: Any
    positions: Any
    actions: Any
    #: Per environment: ended, succeeded, steps, largest coverage.
    outcomes: Any

    @staticmethod
    def make(count: int) -> Shared:
        """Reserve memory for so many environments."""
        context = multiprocessing.get_context("spawn")
        return Shared(
            context.RawArray("B", count * 2 * SIDE * SIDE * 3),
            context.RawArray("d", count * 2 * 2),
            context.RawArray("d", count * EXECUTED * 2),
            context.RawArray("d", count * 4),
        )

    def views(self) -> tuple[Array, Array, Array, Array]:
        """See it as arrays."""
        return (
            np.frombuffer(self.images, np.uint8).reshape(-1, 2, SIDE, SIDE, 3),
            np.frombuffer(self.positions).reshape(-1, 2, 2),
            np.frombuffer(self.actions).reshape(-1, EXECUTED, 2),
            np.frombuffer(self.outcomes).reshape(-1, 4),
        )


class Environments:
    """The environments of one worker."""

    def __init__(self, shared: Shared, live: Live) -> None:
        from gym_pusht.envs.pusht import PushTEnv  # noqa: PLC0415 (after the path is set)

        self.make = PushTEnv
        self.images, self.positions, self.actions, self.outcomes = shared.views()
        self.live = live
        self.running: dict[int, tuple[Any, Callable[[Array], Array]]] = {}

    def reset(self, jobs: Sequence[tuple[int, int, str]]) -> None:
        """Start environments: place, seed, round trip of their images."""
        self.running = {}
        for place, seed, arm in jobs:
            environment, trip = self.make(obs_type="state"), self.live(arm)
            environment.reset(seed=seed)
            self.running[place] = environment, trip
            for side in range(2):
                self._see(place, side)
            self.outcomes[place] = 0, 0, 0, environment._get_coverage()

    def _see(self, place: int, side: int) -> None:
        environment, trip = self.running[place]
        self.images[place, side] = trip(environment._render())
        self.positions[place, side] = environment.agent.position

    def step(self) -> None:
        """Take the next actions everywhere."""
        for place in list(self.running):
            self._advance(place)

    def _advance(self, place: int) -> None:
        environment, _ = self.running[place]
        outcome = self.outcomes[place]
        count = min(EXECUTED, MOST_STEPS - int(outcome[2]))
        for number in range(count):
            _, _, succeeded, _, info = environment.step(self.actions[place, number])
            outcome[2] += 1
            outcome[3] = max(outcome[3], info["coverage"])
            if succeeded:
                outcome[1] = 1
                break
            if number >= count - 2:
                self._see(place, number - (count - 2))
        if outcome[1] or outcome[2] >= MOST_STEPS:
            outcome[0] = 1
            del self.running[place]


def work(pipe: Connection, shared: Shared, live: Live, path: Sequence[str]) -> None:
    """Serve a caller until it hangs up."""
    os.environ.update(SDL_VIDEODRIVER="dummy", PYGAME_HIDE_SUPPORT_PROMPT="1")
    warnings.filterwarnings("ignore")
    sys.path[:] = path
    environments = Environments(shared, live)
    with pipe:
        while True:
            try:
                jobs = pipe.recv()
            except EOFError:
                return
            environments.step() if jobs is None else environments.reset(jobs)
            pipe.send(None)


class Pool:
    """Worker processes, and rollouts on them."""

    def __init__(self, workers: int, count: int, live: Live) -> None:
        context = multiprocessing.get_context("spawn")
        self.shared = Shared.make(count)
        self.images, self.positions, self.actions, self.outcomes = self.shared.views()
        self.pipes = []
        for _ in range(workers):
            near, far = context.Pipe()
            arguments = (far, self.shared, live, sys.path)
            context.Process(target=work, args=arguments, daemon=True).start()
            far.close()
            self.pipes.append(near)

    def _tell(self, messages: Sequence[Any]) -> None:
        for pipe, message in zip(self.pipes, messages, strict=True):
            pipe.send(message)
        for pipe in self.pipes:
            pipe.recv()

    def run(
        self, jobs: Sequence[tuple[int, str]], act: Callable[[Array, Array, Array, int], Array]
    ) -> tuple[Array, Array]:
        """Roll out seeds with round trips; `act(places, images, positions, round)` gives the next actions.

        Returns whether each succeeded, and its largest coverage.
        """
        count, workers = len(jobs), len(self.pipes)
        placed = [(place, seed, arm) for place, (seed, arm) in enumerate(jobs)]
        self._tell([placed[worker::workers] for worker in range(workers)])
        outcomes = self.outcomes[:count]
        turn = 0
        while (live := np.flatnonzero(outcomes[:, 0] == 0)).size:
            self.actions[live] = act(live, self.images[live], self.positions[live], turn)
            self._tell([None] * workers)
            turn += 1
        return outcomes[:, 1] > 0, outcomes[:, 3].copy()

    def close(self) -> None:
        """Let the workers go."""
        for pipe in self.pipes:
            pipe.close()
