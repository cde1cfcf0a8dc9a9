"""What the examples in the docstrings start with: a folder that holds the dataset ``lift.kino``."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kinograph

# It has no examples of its own, and shares its name with the tests' conftest.
collect_ignore = ["conftest.py"]
# Their examples make arrays of packages that need not be there.
collect_ignore += [
    f"kinograph/{name}.py" for name in ("jax", "torch") if importlib.util.find_spec(name) is None
]


@pytest.fixture(autouse=True)
def examples(
    doctest_namespace: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give examples ``kinograph``, ``np``, and ``ds``, which is ``lift.kino`` opened."""
    monkeypatch.chdir(tmp_path)
    with kinograph.Writer("lift.kino", attributes={"env_name": "Lift"}) as writer:
        for number, frames in enumerate((40, 50)):
            steps = np.arange(frames, dtype=float)
            rows, columns = np.indices((32, 24))
            pixels = (steps[:, None, None] + rows + columns).astype(np.uint8)
            writer.add_episode(
                {
                    "actions": np.sin(steps[:, None] * np.arange(1, 8) / 10),
                    "obs/joints": (steps[:, None] * np.ones(7) / 100).astype(np.float32),
                    "obs/agentview_image": np.stack([pixels, pixels, pixels], axis=-1),
                    "language": ["lift the cube"] * frames,
                },
                rate_hz=20.0,
                id=f"demo_{number}",
                task="lift the cube",
                splits=["valid" if number else "train"],
                labels={"operator": "ana"},
            )
    doctest_namespace.update(kinograph=kinograph, np=np, ds=kinograph.open("lift.kino"))
