"""MCAP recordings through the Python front: values and times as the mcap libraries gave them (fixtures/mcap/expected.json)."""

import json
import pathlib

import blake3
import numpy as np
import pytest

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "crates" / "kino_import" / "tests" / "fixtures" / "mcap"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())["sources"]


def digest(array):
    return blake3.blake3(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]


@pytest.mark.parametrize("name", ["json.mcap", "protobuf.mcap", "ros2_zstd.mcap"])
def test_fields_and_times_are_what_the_mcap_libraries_give(name, tmp_path):
    kinograph.pack(FIXTURES / name, tmp_path / "d.kino", on_defect="keep")
    (episode,) = kinograph.open(tmp_path / "d.kino")
    (expected,) = EXPECTED[name]["episodes"]
    origin = None
    compared = 0
    for channel, messages in expected["streams"].items():
        for field, of_field in messages["fields"].items():
            stream = f"{channel.strip('/')}/{field}"
            if stream not in episode or of_field["dtype"] in (None, "text"):
                continue
            found = episode[stream]
            assert found.dtype.name == of_field["dtype"], stream
            assert digest(found[:]) == of_field["blake3"], stream
            # Times count from the episode's first message, whichever stream it is of: one difference for all.
            begins = np.array(messages["timestamps_ns"]) - found.timestamps_ns
            origin = begins[0] if origin is None else origin
            assert (begins == origin).all(), stream
            compared += 1
    assert compared >= 5


def test_a_mapping_picks_fields_and_names_them(tmp_path):
    mapping = tmp_path / "mapping.toml"
    mapping.write_text('[[stream]]\nname = "joints"\ntopic = "/state"\nfield = "joints"\n')
    kinograph.pack(FIXTURES / "json.mcap", tmp_path / "d.kino", mapping=mapping)
    (episode,) = kinograph.open(tmp_path / "d.kino")
    assert list(episode) == ["joints"]
    (expected,) = EXPECTED["json.mcap"]["episodes"]
    assert (
        digest(episode["joints"][:]) == expected["streams"]["/state"]["fields"]["joints"]["blake3"]
    )
