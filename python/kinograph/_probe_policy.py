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
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kinograph._arguments import to_number
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError
from kinograph._probe import Candidate, Interval, Verdict, _asked, _candidate, one_percent
from kinograph._repack import repack

_Batch = TypeVar("_Batch")

# Consecutive batches share frames, so intervals are over this many groups of them; the quantile of Student's t is for it.
_GROUPS, _STUDENT = 10, 2.262
_CONTROL = '[[stream]]\nkind = "image"\ncodec = "jpeg:q=5"\n'


@dataclasses.dataclass(frozen=True)
class PolicyLoss:
    """The loss of a policy on compressed frames, beside that on raw frames.

    ``increase`` is relative to the loss on raw frames, with a 95 % confidence interval. ``limit`` is its upper end if no harm is
    shown, ``reason`` why nothing can be told.
    """

    name: str
    loss: float
    increase: Interval
    verdict: Verdict
    limit: float | None = None
    reason: str | None = None

    def __str__(self) -> str:
        low, mean, high = (
            one_percent(end) for end in (self.increase.low, self.increase.mean, self.increase.high)
        )
        grows = f"the loss grows by {mean} [{low} to {high}]"
        if self.verdict == "harm":
            return f"{self.name}: harm, {grows}"
        if self.verdict == "no_harm_above":
            return (
                f"{self.name}: no harm larger than {one_percent(self.limit or 0.0)} seen, {grows}"
            )
        if self.verdict == "identical":
            return f"{self.name}: every batch is the same"
        return f"{self.name}: cannot tell, {self.reason}"


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
        lines = [*map(str, self.candidates), f"control, JPEG 5 of all images: {self.control}"]
        return "\n".join(
            [*lines, f"{self.batches} batches, loss {self.raw_loss:.6g} on raw frames"]
        )


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
) -> PolicyProbed:
    """Compare the loss of a trained policy on raw and on compressed frames of the same batches.

    >>> found = kinograph.probe_policy(  # doctest: +SKIP
    ...     ds, policy=lambda batch: float(model.loss(batch)), loader=held_out_batches, codecs={"obs/*_image": "jpeg:q=75"}
    ... )

    This is the mismatch within the same weights: what a policy suffers whose camera compresses, if it was trained on raw
    frames. The episodes are stored with every candidate in ``folder``, and removed afterwards.

    :param source: A dataset of raw frames
    :param policy: The loss on a batch. It must be the same for the same batch: no dropout, fixed noise
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
    """
    if not callable(policy) or not callable(loader):
        raise InvalidArgumentError(
            "`policy` and `loader` must be functions: of a batch, and of a dataset"
        )
    dataset = source if isinstance(source, Dataset) else Dataset(source)
    names = None if episodes is None else [dataset[one].id for one in episodes]
    parts = [
        _candidate(name, one) for name, one in _asked(plan, codecs, against, candidates).items()
    ]
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
                found.append(float(policy(batch)))
                if len(found) == batches:
                    break
            return np.array(found)

        raw = losses(0, None, dataset)
        if len(raw) < _GROUPS or not raw.mean() > 0:
            raise InvalidArgumentError(
                f"{len(raw)} batches with a mean loss of {raw.mean() if len(raw) else 0:.4g}: at least {_GROUPS} batches are "
                "needed, and a loss above 0"
            )
        control = _loss("JPEG 5", raw, losses(1, _CONTROL, dataset))
        is_seen = control.increase.low > to_number("margin", margin)
        doubt = f"the loss does not grow by {one_percent(margin)} even with JPEG 5"
        judged = []
        for number, (name, toml, core, functions) in enumerate(parts):
            if functions:
                raise InvalidArgumentError(
                    f"candidate {name!r} has functions, which no dataset can be stored with; use `kinograph.probe`"
                )
            other = dataset
            if core is not None:
                other = Dataset(core.path, version=core.version)
            judged.append(
                _loss(name, raw, losses(number + 2, toml, other), None if is_seen else doubt)
            )
    return PolicyProbed(float(raw.mean()), len(raw), tuple(judged), control)


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
