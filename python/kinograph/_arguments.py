"""Argument checks for samples, orders and loaders, so that errors name the arguments as the caller wrote them."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np

from kinograph import _core
from kinograph._errors import InvalidArgumentError
from kinograph._stream import is_number

# The largest integers that the core takes.
U32 = (1 << 32) - 1
U64 = (1 << 64) - 1
# The last global index of an order; epochs and batches end there too.
LAST_INDEX = 1 << 62


def to_whole(name: str, value: object, *, least: int = 0, most: int = U32) -> int:
    """Check for an integer between two bounds, both included."""
    if not is_number(value) or not least <= operator.index(value) <= most:
        raise InvalidArgumentError(
            f"{name} is {value!r}; give a whole number from {least} to {most}"
        )
    return operator.index(value)


def to_word(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Check for one of the allowed values."""
    if not (isinstance(value, str) and value in allowed):
        raise InvalidArgumentError(f"{name} is {value!r}; use one of {', '.join(allowed)}")
    return value


def to_text(name: str, value: object) -> str:
    """Check for text that can be stored: half of a surrogate pair is not valid Unicode."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} is {value!r}; give a str")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name} is {value!r}, which is not valid Unicode: {error}"
        ) from None
    return value


def to_number(name: str, value: object) -> float:
    """Check for a real number; text, bools, datetimes and masked values do not count as numbers."""
    is_other = isinstance(value, str | bytes | bool | np.bool_ | np.datetime64 | np.timedelta64)
    try:
        if is_other or np.ma.is_masked(value):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name} is {value!r}; give a number") from None


def unmasked(name: str, value: object) -> object:
    """Refuse an array with masked values: the mask would be lost, and the values under it stored as data."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise InvalidArgumentError(
                f"{name} is a masked array with {int(np.ma.getmaskarray(value).sum())} masked values, and masks are not stored; fill them "
                "(array.filled(value)) and store the mask as a separate stream (np.ma.getmaskarray(array))"
            )
        return value.data
    return value


def to_bytes(name: str, size: object, *, least: int = 0) -> int:
    """Take a number of bytes, or text such as ``"4GB"``."""
    if isinstance(size, str):
        try:
            return to_whole(f"{name} (bytes)", _core.parse_bytes(size), least=least, most=U64)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
    if not is_number(size):
        raise InvalidArgumentError(f"{name} is {size!r}; give a size such as '4GB', or whole bytes")
    return to_whole(f"{name} (bytes)", size, least=least, most=U64)


def to_list(name: str, value: object, what: str) -> list[object]:
    """Check for a list; a str is not taken for a list of characters."""
    if isinstance(value, str) or not isinstance(value, Iterable | np.ndarray):
        raise InvalidArgumentError(f"{name} is {value!r}; give a list of {what}")
    return list(value)


def said_twice(request: Iterable[str]) -> InvalidArgumentError:
    """Refuse options next to samples, sources or a loader, which already have theirs."""
    names = ", ".join(f"`{name}`" for name in request)
    return InvalidArgumentError(
        f"{names} cannot be combined with existing samples or an existing loader; use the option where they are created"
    )
