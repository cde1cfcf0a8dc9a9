"""The mismatch that a trained policy suffers: the same weights and batches, raw and compressed.

    found = kinograph.probe_policy(
        ds, policy=loss, loader=lambda held_out: kinograph.torch.Loader(held_out, …, shuffle=False),
        codecs={"obs/*_image": "jpeg:q=75"}, episodes=["demo_7", "demo_9"],
    )

The probe of ``_probe.py`` fits regressors of its own; here nothing is trained, so there is no noise of training.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import to_number
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError
from kinograph._probe import Candidate, Interval, Verdict, _asked, _candidate, one_percent
from kinograph._repack import repack

_Batch = TypeVar("_Batch")

# Consecutive batches share frames, so intervals are over this many groups of them; the quantile of Student's t is for it.
_GROUPS, _STUDENT = 10, 2.262
_CONTROL_NAME = "all images as JPEG 5"
_CONTROL = '[[stream]]\nkind = "image"\ncodec = "jpeg:q=5"\n'


@dataclasses.dataclass(frozen=True)
class PolicyLoss:
    """The loss of a policy on compressed frames, beside that on raw frames.

    ``increase`` is relative to the loss on raw frames, with a 95 % confidence interval. ``limit`` is its upper end if no harm is
    shown, ``reason`` why nothing can be told. ``text`` is what ``print`` calls it: the codecs, if these are the only candidate.
    """

    name: str
    loss: float
    increase: Interval
    verdict: Verdict
    limit: float | None = None
    reason: str | None = None
    text: str = ""

    def __str__(self) -> str:
        low, mean, high = (
            one_percent(end) for end in (self.increase.low, self.increase.mean, self.increase.high)
        )
        name = self.text or self.name
        grows = f"the loss grows by {mean} [{low} to {high}]"
        if self.verdict == "harm":
            return f"{name}: harm, {grows}"
        if self.verdict == "no_harm_above":
            return f"{name}: no harm larger than {one_percent(self.limit or 0.0)} seen, {grows}"
        if self.verdict == "identical":
            return f"{name}: every batch is the same"
        return f"{name}: cannot tell, {self.reason}"


@dataclasses.dataclass(frozen=True)
class PolicyProbed:
    """What a policy loses if its frames are compressed, by candidate; ``print`` shows a line for each.

    ``control`` is the loss on images stored as JPEG of quality 5: unless it grows, no harm is certified.
    """

    raw_loss: float
    batches: int
    candidates: tuple[PolicyLoss, ...]
    control: PolicyLoss

    def __getitem__(self, name: str) -> PolicyLoss:
        for candidate in self.candidates:
            if candidate.name == name:
                return candidate
        raise KeyError(f"{name!r} is not a candidate")

    def __str__(self) -> str:
        lines = [*map(str, self.candidates), f"control, {self.control}"]
        return "\n".join(
            [*lines, f"{self.batches} batches, loss {self.raw_loss:.6g} on raw frames"]
        )


def _say(text: str) -> None:
    """Write a line about what comes next to stderr."""
    sys.stderr.write(f"kinograph probe_policy: {text}\n")


def probe_policy(  # noqa: PLR0913 (each is a keyword of its own)
    source: str | os.PathLike[str] | Dataset,
    *,
    policy: Callable[[_Batch], float],
    loader: Callable[[Dataset], Iterable[_Batch]],
    plan: Candidate | None = None,
    codecs: Mapping[str, Any] | None = None,
    against: str | os.PathLike[str] | Dataset | None = None,
    candidates: Mapping[str, Candidate] | None = None,
    episodes: Sequence[int | str] | None = None,
    batches: int = 200,
    margin: float = 0.02,
    folder: str | os.PathLike[str] = ".",
    progress: Callable[[str], object] | None = _say,
) -> PolicyProbed:
    """Compare the loss of a trained policy on raw and on compressed frames of the same batches.

    >>> def policy(batch):  # no dropout, fixed noise
    ...     with torch.no_grad():
    ...         return model.loss(batch).item()
    >>> found = kinograph.probe_policy(  # doctest: +SKIP
    ...     ds, policy=policy, loader=held_out_batches, codecs={"obs/*_image": "jpeg:q=75"}
    ... )

    This is the mismatch within the same weights: what a policy suffers whose camera compresses, if it was trained on raw
    frames. The episodes are stored with every candidate in ``folder``, and removed afterwards.

    :param source: A dataset of raw frames
    :param policy: The loss on a batch, as one number. It must be the same for the same batch: no dropout, fixed noise
    :param loader: Makes the batches of a dataset, the same ones in the same order each time, such as a loader with
        ``shuffle=False`` and without random crops
    :param plan: As for :func:`kinograph.probe`
    :param codecs: As for :func:`kinograph.probe`, without functions
    :param against: As for :func:`kinograph.probe`
    :param candidates: As for :func:`kinograph.probe`, without functions
    :param episodes: Episodes that the policy was not trained on; by default all
    :param batches: Batches to compare, at most; at least 10 are needed
    :param margin: By which share the loss must grow on JPEG 5 before no harm is certified
    :param folder: Where episodes are stored for the comparison
    :param progress: Called with a line about what comes next; by default written to stderr
    """
    if not callable(policy) or not callable(loader):
        raise InvalidArgumentError(
            "`policy` and `loader` must be functions: of a batch, and of a dataset"
        )
    dataset = source if isinstance(source, Dataset) else Dataset(source)
    names = None if episodes is None else [dataset[one].id for one in episodes]
    asked = _asked(plan, codecs, against, candidates)
    parts = [_part(dataset, name, one, asked) for name, one in asked.items()]
    limit = to_number("margin", margin)
    say = progress or (lambda _: None)
    with tempfile.TemporaryDirectory(prefix=".kinograph-probe-", dir=folder) as place:

        def losses(number: int, toml: str | None, other: Dataset) -> npt.NDArray[np.float64]:
            target = pathlib.Path(place) / f"{number}.kino"
            if toml is not None:
                file = target.with_suffix(".toml")
                file.write_text(toml, encoding="utf-8")
                repack(other.path, target, plan=file, episodes=names, allow_generation_loss=True)
            else:
                repack(other.path, target, episodes=names)
            found: list[float] = []
            for batch in loader(Dataset(target)):
                found.append(_to_loss(policy(batch)))
                if len(found) == batches:
                    break
            return np.array(found)

        say("raw frames")
        raw = losses(0, None, dataset)
        if len(raw) < _GROUPS:
            raise InvalidArgumentError(
                f"the loader gives {len(raw)} batches; at least {_GROUPS} are needed: use more episodes or a smaller "
                "batch_size"
            )
        if not 0 < raw.mean() < np.inf:
            raise InvalidArgumentError(
                f"the mean loss on raw frames is {raw.mean():.4g}; it must be finite and above 0"
            )
        say(f"control, {_CONTROL_NAME}")
        control = _loss(_CONTROL_NAME, raw, losses(1, _CONTROL, dataset))
        is_seen = control.increase.low > limit
        doubt = f"the loss does not grow by {one_percent(margin)} even with JPEG 5"
        judged = []
        for number, part in enumerate(parts):
            say(part.text)
            found = losses(number + 2, part.toml, part.dataset)
            one = _loss(part.name, raw, found, None if is_seen else doubt)
            judged.append(dataclasses.replace(one, text=part.text))
    return PolicyProbed(float(raw.mean()), len(raw), tuple(judged), control)


@dataclasses.dataclass(frozen=True)
class _Part:
    """A candidate: the dataset whose episodes are stored, and the plan that they are stored with."""

    name: str
    text: str
    toml: str | None
    dataset: Dataset


def _part(dataset: Dataset, name: str, one: Candidate, asked: Mapping[str, Candidate]) -> _Part:
    """Take a candidate, unless it cannot be stored or changes nothing: "every batch is the same" would reassure falsely."""
    _, toml, core, functions = _candidate(name, one)
    if functions:
        raise InvalidArgumentError(
            f"candidate {name!r} has functions, which no dataset can be stored with; use `kinograph.probe`"
        )
    there = ", ".join(dataset.streams)
    if toml is None:
        other = dataset if core is None else Dataset(core.path, version=core.version)
        if not set(other.streams) & set(dataset.streams):
            raise InvalidArgumentError(
                f"candidate {name!r} changes no stream: it has none of {there}"
            )
        return _Part(name, name, None, other)
    is_any, unmatched = _core.unmatched_rules(dataset._core, toml)
    if not is_any:
        why = f"{unmatched[0]!r} matches none" if unmatched else "it has no rule"
        raise InvalidArgumentError(
            f"candidate {name!r} changes no stream: {why}; there are {there}"
        )
    text = name
    if isinstance(one, Mapping):
        if unmatched:
            raise InvalidArgumentError(
                f"candidate {name!r}: {unmatched[0]!r} matches no stream; there are {there}"
            )
        if len(asked) == 1 and name == "codecs":
            text = ", ".join(f"{pattern}={codec}" for pattern, codec in one.items())
    return _Part(name, text, toml, dataset)


def _to_loss(value: object) -> float:
    """Take what a policy returns on a batch."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError) as error:
        shape = getattr(value, "shape", None)
        what = type(value).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
        raise InvalidArgumentError(
            f"policy returned {what}; return the loss as one number"
        ) from error


def _loss(
    name: str,
    raw: npt.NDArray[np.float64],
    other: npt.NDArray[np.float64],
    doubt: str | None = None,
) -> PolicyLoss:
    """Judge losses on the same batches."""
    if len(raw) != len(other):
        raise InvalidArgumentError(
            f"the loader gives {len(raw)} batches of raw frames and {len(other)} with {name!r}; it must give the same ones"
        )
    if not np.isfinite(other).all():
        raise InvalidArgumentError(f"the loss with {name!r} is not finite on every batch")
    apart = (other - raw) / raw.mean()
    groups = np.array([part.mean() for part in np.array_split(apart, _GROUPS)])
    mean, reach = float(apart.mean()), float(_STUDENT * groups.std(ddof=1) / _GROUPS**0.5)
    increase = Interval(mean, mean - reach, mean + reach)
    loss = float(other.mean())
    if not apart.any():
        return PolicyLoss(name, loss, increase, "identical")
    if increase.low > 0:
        return PolicyLoss(name, loss, increase, "harm")
    if doubt is not None:
        return PolicyLoss(name, loss, increase, "cannot_tell", reason=doubt)
    return PolicyLoss(name, loss, increase, "no_harm_above", limit=max(increase.high, 0.0))
