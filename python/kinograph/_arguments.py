"""What arguments of windows and orders may be: checked here, so that errors speak the caller's words."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np

from kinograph import _core
from kinograph._errors import InvalidArgumentError
from kinograph._stream import is_number

# The largest numbers that the core holds.
U32 = (1 << 32) - 1
U64 = (1 << 64) - 1
# The last global index of an order; epochs and batches end there too.
LAST_INDEX = 1 << 62


def to_whole(name: str, value: object, *, least: int = 0, most: int = U32) -> int:
    """Take a whole number between two others."""
    if not is_number(value) or not least <= operator.index(value) <= most:
        raise InvalidArgumentError(
            f"{name} is {value!r}; give a whole number from {least} to {most}"
        )
    return operator.index(value)


def to_word(name: str, value: object, words: tuple[str, ...]) -> str:
    """Take one of some words."""
    if not (isinstance(value, str) and value in words):
        raise InvalidArgumentError(f"{name} is {value!r}; use one of {', '.join(words)}")
    return value


def to_text(name: str, value: object) -> str:
    """Take text that can be stored: half of a surrogate pair is no character."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} is {value!r}; give text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name} is {value!r}, which is not valid Unicode: {error}"
        ) from None
    return value


def to_number(name: str, value: object) -> float:
    """Take a number, which may have a fraction; text, truth values and times are none, nor is what a mask hides."""
    is_other = isinstance(value, str | bytes | bool | np.bool_ | np.datetime64 | np.timedelta64)
    try:
        if is_other or np.ma.is_masked(value):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name} is {value!r}; give a number") from None


def unmasked(name: str, value: object) -> object:
    """Take an array that hides nothing: a mask would be lost, and what it hides be taken for data."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise InvalidArgumentError(
                f"{name} is a masked array and hides {int(np.ma.getmaskarray(value).sum())} values; a mask is not stored: fill them "
                "(array.filled(value)) and store the mask as a stream of its own (np.ma.getmaskarray(array))"
            )
        return value.data
    return value


def to_bytes(name: str, size: object) -> int:
    """Take a number of bytes, or text such as ``"4GB"``."""
    if isinstance(size, str):
        try:
            return _core.parse_bytes(size)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
    if not is_number(size):
        raise InvalidArgumentError(f"{name} is {size!r}; give a size such as '4GB', or whole bytes")
    return to_whole(f"{name} (bytes)", size, least=1, most=U64)


def to_list(name: str, value: object, what: str) -> list[object]:
    """Take a list of things; one text is no list of letters."""
    if isinstance(value, str) or not isinstance(value, Iterable | np.ndarray):
        raise InvalidArgumentError(f"{name} is {value!r}; give a list of {what}")
    return list(value)


def said_twice(request: Iterable[str]) -> InvalidArgumentError:
    """Refuse options of a request beside samples that were already made by one."""
    names = ", ".join(f"`{name}`" for name in request)
    return InvalidArgumentError(
        f"{names} cannot be combined with existing samples; pass {names} to `ds.samples(...)`"
    )
