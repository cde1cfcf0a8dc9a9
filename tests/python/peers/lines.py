"""The layout of recorded JSON: long lists have one element per line, so that a difference shows as one line."""

import json
from collections.abc import Mapping, Sequence


def to_lines(head: Mapping[str, object], lists: Mapping[str, Sequence[object]]) -> str:
    """Format the short entries, then the long lists."""
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for key, values in lists.items():
        rows = ",\n".join(json.dumps(value, separators=(",", ":")) for value in values)
        parts.append(f"{json.dumps(key)}: [\n{rows}\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"
