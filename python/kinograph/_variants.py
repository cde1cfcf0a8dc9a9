"""Variants: which encoding of a stream is read, always or from an epoch on.

    variants={"wrist": "small"}                     the batch's `wrist` comes from `wrist@small`
    variants={"wrist": {0: "small", 5: None}}       from epoch 5 on from `wrist` itself
    variants={"**": "small"}                        every requested stream that has such a variant

Windows, keys and the order of samples stay as they are: a variant has the times and the number of frames of its stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kinograph._arguments import LAST_INDEX, to_list, to_whole
from kinograph._errors import InvalidArgumentError

if TYPE_CHECKING:
    from kinograph._samples import Samples

# A variant, or None for the stream itself.
Variant: TypeAlias = "str | None"
# The variant from each epoch on.
Regimen: TypeAlias = "Mapping[int, Variant] | Sequence[tuple[int, Variant]]"
# By pattern of streams.
Variants: TypeAlias = "Mapping[str, Variant | Regimen]"


def to_pairs(variants: object) -> list[tuple[str, str | None]]:
    """Write variants as a request has them, without epochs."""
    if not isinstance(variants, Mapping):
        raise not_a_dict(variants)
    for pattern, variant in variants.items():
        if not isinstance(pattern, str) or not (variant is None or isinstance(variant, str)):
            raise InvalidArgumentError(
                f"variants has {pattern!r}: {variant!r}; give the name of a variant, or None for the stream itself"
            )
    return list(variants.items())


def not_a_dict(variants: object) -> InvalidArgumentError:
    """Say that variants are given by stream."""
    return InvalidArgumentError(
        f"variants is {variants!r}; give a dict of streams, such as {{'wrist': 'small'}}"
    )


def to_curriculum(samples: Samples, variants: object) -> dict[int, Samples]:
    """Make the samples of every epoch at which a variant changes, the first at epoch 0."""
    if not isinstance(variants, Mapping):
        raise not_a_dict(variants)
    regimens = {pattern: _to_regimen(pattern, variant) for pattern, variant in variants.items()}
    curriculum: dict[int, Samples] = {}
    before: dict[str, str | None] | None = None
    for epoch in sorted({0, *(epoch for regimen in regimens.values() for epoch in regimen)}):
        now = {pattern: _at(regimen, epoch) for pattern, regimen in regimens.items()}
        if now != before:
            curriculum[epoch] = samples.with_variants(now)
        before = now
    return curriculum


def _to_regimen(pattern: object, variant: object) -> dict[int, str | None]:
    """Read the variant of a stream from each epoch on."""
    if variant is None or isinstance(variant, str):
        to_pairs({pattern: variant})
        return {0: variant}
    listed = variant.items() if isinstance(variant, Mapping) else variant
    regimen: dict[int, str | None] = {}
    for item in to_list(f"variants of {pattern!r}", listed, "pairs (epoch, variant)"):
        if not (isinstance(item, Sequence) and not isinstance(item, str) and len(item) == 2):
            raise InvalidArgumentError(
                f"variants of {pattern!r} has {item!r}; give the variant from each epoch on, such as {{0: 'small', 5: None}}"
            )
        epoch = to_whole(f"an epoch of the variants of {pattern!r}", item[0], most=LAST_INDEX)
        if epoch in regimen:
            raise InvalidArgumentError(
                f"variants of {pattern!r} has epoch {epoch} twice; give each epoch once"
            )
        to_pairs({pattern: item[1]})
        regimen[epoch] = item[1]
    return regimen


def _at(regimen: dict[int, str | None], epoch: int) -> str | None:
    """Give the variant at an epoch; before the first that is named, the stream itself."""
    begun = [start for start in regimen if start <= epoch]
    return regimen[max(begun)] if begun else None
