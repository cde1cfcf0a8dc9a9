"""Text from files on a terminal: control characters are escaped in the output of every command."""

import json
import subprocess
import sys

import h5py
import numpy as np
import pytest

import kinograph

# A window title, a color by C0 and by C1, a carriage return, a reversed text direction, a forged line, DEL.
ODD = "\x1b]0;pwned\x07\x1b[31m\x9b32m\rx\u202egpj\u2066\u200e\u2028error: all is lost\x7f"
LINES = f"first{ODD}\n\tsecond"


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Write a dataset whose free text all contains control characters."""
    path = tmp_path_factory.mktemp("odd") / "odd.kino"
    writer = kinograph.Writer(path)
    writer.add_episode(
        {"x": np.arange(10.0), "text": [LINES] * 10},
        rate_hz=10.0,
        task=LINES,
        splits=[LINES],
        labels={"note": LINES},
        attributes={"about": LINES},
    )
    writer.commit(LINES)
    return path


def run(*arguments):
    command = [sys.executable, "-m", "kinograph", *map(str, arguments)]
    answer = subprocess.run(command, capture_output=True, check=False)
    return answer.returncode, answer.stdout.decode(), answer.stderr.decode()


def assert_plain(text):
    """Check that a terminal would only show the text."""
    assert [c for c in text if not c.isprintable() and c not in "\n\t"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("info",),
        ("info", "--episodes"),
        ("verify",),
        ("verify", "--decode"),
        ("cat",),
        ("cat", "episode_0"),
        ("cat", "episode_0", "text"),
        ("cat", "episode_0", ODD),
        ("cat", ODD, "text"),
        ("doctor", "--step-ms", "1", "--seconds", "0.2", "--batch-size", "2", "--split", LINES),
    ],
    ids=repr,
)
def test_no_command_prints_control_characters(odd, arguments):
    name, *rest = arguments
    _, out, err = run(name, odd, *rest)
    assert_plain(out)
    assert_plain(err)
    # Each line is the command's own (a frame, a row, a message), none comes from the text.
    assert not [
        line for line in (out + err).splitlines() if line.startswith(("\tsecond", "error: all"))
    ]


def test_text_is_shown_escaped_and_kept_on_its_line(odd):
    code, out, _ = run("cat", odd, "episode_0", "text")
    assert code == 0
    assert len(out.splitlines()) == 10
    assert r"first\u{1b}]0;pwned\u{7}\u{1b}[31m\u{9b}32m\u{d}x\u{202e}gpj" in out
    assert r"\n\tsecond" in out
    _, out, _ = run("info", odd, "--episodes")
    assert out.count("pwned") == 3  # the message, the split and the task


def test_json_is_escaped_and_decodes_to_the_original(odd):
    _, out, _ = run("cat", odd, "episode_0", "text", "--json")
    assert_plain(out)
    assert [json.loads(line)["value"] for line in out.splitlines()] == [LINES] * 10
    _, out, _ = run("info", odd, "--episodes", "--json")
    assert_plain(out)
    (episode,) = json.loads(out)["table"]
    assert (episode["task"], episode["splits"]) == (LINES, [LINES])


def complaint(source, target, policy):
    try:
        return repr(kinograph.pack(source, target, rate_hz=20.0, on_defect=policy).defects)
    except kinograph.KinographError as error:
        return str(error)


@pytest.mark.parametrize("policy", ["error", "keep", "drop-episode"])
def test_names_of_a_recording_are_escaped_in_errors_and_defects(tmp_path, policy):
    source = tmp_path / "demos.hdf5"
    with h5py.File(source, "w") as file:
        demo = file.create_group("data/demo_0")
        demo["actions"] = np.zeros((5, 7))
        demo[f"obs/{ODD}"] = np.zeros((5, 3))
        demo[f"obs/half{ODD}"] = np.zeros((4, 3), complex)
    options = ("--rate", "20", "--on-defect", policy)
    code, out, err = run("pack", source, tmp_path / "d.kino", *options)
    assert_plain(out)
    assert_plain(err)
    # If the episode is dropped, there may be nothing left to name.
    assert "pwned" in err or policy == "drop-episode"
    assert code != 0
    message = complaint(source, tmp_path / "e.kino", policy)
    assert "pwned" in message or policy == "drop-episode"
    assert_plain(message)


def test_exceptions_are_plain_and_keep_their_lines(odd):
    ds = kinograph.open(odd)
    for wrong in (lambda: ds[ODD], lambda: ds[0][ODD], lambda: ds.samples({ODD: [0]})):
        with pytest.raises(kinograph.KinographError) as raised:
            wrong()
        assert "pwned" in str(raised.value)
        assert_plain(str(raised.value))
    for kind in (kinograph.CorruptDataError, kinograph.NotFoundError, kinograph.StorageError):
        assert str(kind(f"a\n  b\x1b{kind.__name__}")) == f"a\n  b\\u{{1b}}{kind.__name__}"
    assert str(kinograph.StorageError(2, "gone\x1b")) == "gone\\u{1b}"
    assert str(kinograph.KinographError()) == ""
    assert_plain(repr(ds.samples({"x": [0]})) + repr(ds.episodes))
