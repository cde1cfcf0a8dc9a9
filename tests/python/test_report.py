"""A loader's report: its contents, its formats, and the trace."""

import io
import itertools
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from test_loader import make

import kinograph
from kinograph._live import Live, status, table


def test_the_report_of_a_loop_with_compute_marks_has_its_utilisation(lift):
    loader = make(lift)
    for number, _ in enumerate(loader):
        if number % 2:
            with loader.compute():
                pass
        else:
            loader.compute_begin()
            loader.compute_end()
    report = loader.report()
    assert report.loop.is_marked
    assert report.loop.steps == len(loader.order.steps(0))
    assert 0 < report.utilisation <= 1
    assert 0 < report.compute_ratio <= 1
    assert report.cache_hits + report.cache_misses >= report.samples
    assert report.read_amplification >= 1
    assert 0 < report.decode_amplification < 1
    assert report.batch_buffer_bytes > 0
    taken = sum(moment["batches"] for moment in report.timeline)
    assert taken == report.batches
    assert sum(bucket["count"] for bucket in report.waits["buckets"]) == report.batches - 1


def test_a_report_is_shown_as_a_table_as_html_and_as_json(lift, tmp_path):
    loader = make(lift)
    list(loader)
    report = loader.report()
    assert "per step" in str(report)
    assert report.verdict in str(report)
    page = report.to_html(tmp_path / "report.html")
    root = ET.fromstring(page.removeprefix("<!DOCTYPE html>"))
    assert len(list(root.iter("svg"))) == 6
    assert "http" not in page
    assert ET.fromstring(report._repr_html_()).tag == "div"
    again = json.loads(report.to_json(tmp_path / "report.json"))
    assert again == json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert again["loader"]["batches"] == report.batches
    assert again["loop"]["steps"] == report.loop.steps
    assert again["verdict"] == report.verdict


def test_a_report_with_a_price_says_what_waiting_costs(lift):
    loader = make(lift)
    list(loader)
    report = loader.report(gpu_price=3.0, gpus=2)
    cost = report.idle.cost
    hours = (1 - report.idle.compute_ratio) * 24 * 2
    assert (cost.idle_gpu_hours_per_day, cost.cost_per_day) == pytest.approx((hours, 3 * hours))
    for text in (str(report), report.to_html()):
        assert f"waiting costs {cost.cost_per_day:.2f} per day" in text
        assert ("ALARM" in text) == report.idle.is_alarm
    assert json.loads(report.to_json())["idle"]["cost"]["gpus"] == 2
    assert loader.report().idle.cost is None
    with pytest.raises(kinograph.InvalidArgumentError, match="gpu_price"):
        loader.report(gpu_price=0)


def test_a_report_before_the_first_batch_can_be_shown(lift):
    report = make(lift).report()
    assert report.loop.steps == 0
    assert "No step has ended yet" in str(report)
    ET.fromstring(report._repr_html_())


def test_the_status_is_one_line_and_the_live_table_has_a_fixed_number_of_lines(lift):
    loader = make(lift)
    list(zip(range(5), loader, strict=False))
    before = loader.report()
    list(loader)
    after = loader.report()
    assert "\n" not in loader.status()
    assert status(after, before).startswith(f"batch {after.batches}: ")
    assert len(table(before)) == len(table(after, before)) == 8
    # A restarted loader counts from zero.
    assert status(before, after) == status(before)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_live_prints_lines_or_redraws_a_table(lift, kind):
    loader = make(lift)
    shown = kind()
    live = Live(loader.report, 60.0, shown)
    with live:
        live._show()
        list(loader)
    text = shown.getvalue()
    assert text.count("samples/s") == 2
    assert ("\x1b[8F" in text) == (kind is Terminal)
    with pytest.raises(kinograph.InvalidArgumentError, match="every_s"):
        loader.live(every_s=0)


def test_a_trace_has_one_track_per_thread_with_nested_events(lift, tmp_path):
    loader = make(lift)
    with loader.trace(tmp_path / "trace.json"):
        for _ in loader:
            with loader.compute():
                np.zeros(10)
        with pytest.raises(kinograph.InvalidArgumentError, match="already being traced"):
            loader.trace(tmp_path / "other.json").__enter__()
        # Another core, in the same trace.
        loader.set_epoch(5)
        next(iter(loader))
    trace = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in events} >= {
        "schedule",
        "fetch",
        "decode",
        "collate",
        "wait",
        "compute",
    }
    assert len({event["pid"] for event in trace["traceEvents"]}) == 1
    named = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert set(named) >= {event["tid"] for event in events}
    assert named[0] == "training loop"
    assert sum(name == "kino-schedule" for name in named.values()) == 2
    steps = len(loader.order.steps(0))
    assert sum(event["name"] == "compute" for event in events) == steps
    assert sum(event["name"] == "wait" for event in events) == steps + 1
    for thread in named:
        own = [event for event in events if event["tid"] == thread]
        own.sort(key=lambda event: (event["ts"], -event["dur"]))
        assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in own)
        for left, right in itertools.pairwise(own):
            end = left["ts"] + left["dur"]
            inside = right["ts"] + right["dur"] <= end + 0.002
            assert inside or right["ts"] >= end - 0.002, (left, right)


def test_a_trace_ends_with_its_block(lift, tmp_path):
    loader = make(lift)
    for name in ("a.json", "b.json"):
        with loader.trace(tmp_path / name):
            next(iter(loader))
        next(iter(loader))
    trace = json.loads((tmp_path / "b.json").read_text("utf-8"))
    assert sum(event["name"] == "wait" for event in trace["traceEvents"]) == 1
    assert loader._loop._trace is None
