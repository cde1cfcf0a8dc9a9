"""The digest of a sample, which recorders write and tests compare.

sample   dict of arrays, nested dicts allowed: {"obs": {"x": …}} is {"obs/x": …}
line     key "\\0" dtype "\\0" shape "\\0" bytes      dtype as "<f8", shape as "10,7"
digest   first 16 hex digits of sha256 over the lines, by key in order of its UTF-8 bytes

Bytes are little-endian and in C order. Text is its own line: dtype "text", shape the number of texts, and for each text
its length in bytes as 8 bytes, little-endian, then its UTF-8. Two samples with the same digest have the same keys,
dtypes, shapes and bits; so NaN equals itself and -0.0 differs from 0.0.
"""

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

DIGITS = 16


def flatten(sample: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested dicts into one, with keys joined by "/"."""
    flat: dict[str, object] = {}
    for key, value in sample.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}/"))
        else:
            flat[prefix + key] = value
    return flat


def digest(sample: Mapping[str, object]) -> str:
    """Compute the digest of a sample."""
    hashed = hashlib.sha256()
    flat = flatten(sample)
    for key in sorted(flat, key=lambda key: key.encode()):
        for part in _line(key, flat[key]):
            hashed.update(part)
    return hashed.hexdigest()[:DIGITS]


def _line(key: str, value: object) -> Iterator[bytes | memoryview]:
    texts = _to_texts(value)
    if texts is not None:
        yield _head(key, "text", (len(texts),))
        for text in texts:
            encoded = text.encode()
            yield len(encoded).to_bytes(8, "little")
            yield encoded
        return
    array = np.asarray(value)
    # ascontiguousarray would add an axis to a scalar.
    array = np.array(array, dtype=array.dtype.newbyteorder("<"), order="C")
    yield _head(key, array.dtype.str, array.shape)
    yield array.tobytes()


def _head(key: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    return f"{key}\0{dtype}\0{','.join(map(str, shape))}\0".encode()


def _to_texts(value: object) -> list[str] | None:
    """Return the texts of a text value: one `str`, a list or an array of `str`; ``None`` for anything else."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUT":
        return [str(text) for text in value.reshape(-1)]
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        return value
    return None
