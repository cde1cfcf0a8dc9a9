"""Measurements of a training loop, with fake clocks."""

import itertools
import threading

import pytest

from kinograph import _loop
from kinograph._loop import Loop, LoopReport


class Device:
    """A clock whose marks are past only when the test says so: a GPU that lags behind."""

    name = "cuda"

    def __init__(self):
        self.now = 0.0
        self.come_to = 0.0

    def mark(self):
        return self.now

    def is_past(self, mark):
        return mark <= self.come_to

    def seconds(self, start, end):
        assert self.is_past(end), "marks must not be read before the device has reached them"
        return end - start


def run(loop, steps, now=100.0):
    """Play steps of (wait, time until the next batch is requested)."""
    for wait, rest in steps:
        loop.took(now, now + wait)
        now += wait + rest
    loop.end(now)
    return now


def test_a_loop_without_steps_has_not_waited():
    assert Loop().report() == LoopReport(
        waits={"first_s": 0.0, "longest_s": 0.0, "stalls": 0, "stall_s": 0.0, "buckets": []}
    )


def test_the_first_step_counts_in_the_sums_but_not_in_the_utilisation():
    loop = Loop()
    run(loop, [(2.0, 1.0), (0.5, 1.5), (0.0, 2.0)])
    report = loop.report()
    assert (report.steps, report.elapsed_s, report.wait_s, report.compute_s) == (3, 7.0, 2.5, 4.5)
    assert report.compute_ratio == 4.5 / 7
    # Without marks, everything that is not waiting is compute.
    assert report.utilisation == 3.5 / 4
    assert not report.is_marked
    assert report.wait.mean_s == 0.25
    assert report.step.longest_s == 2.0
    assert report.waits["first_s"] == 2.0


def test_the_current_step_is_not_counted():
    loop = Loop()
    loop.took(10.0, 11.0)
    loop.took(13.0, 13.5)
    report = loop.report()
    assert (report.steps, report.elapsed_s, report.wait_s) == (1, 3.0, 1.0)


def test_percentiles_are_those_of_a_sorted_list():
    loop = Loop()
    waits = [9.0, *(((idx * 37) % 100) / 1000 for idx in range(100))]
    run(loop, [(wait, 1.0) for wait in waits])
    spread = loop.report().wait
    assert spread.p50_s == pytest.approx(0.050)
    assert spread.p90_s == pytest.approx(0.090)
    assert spread.p99_s == pytest.approx(0.099)
    assert spread.longest_s == pytest.approx(0.099)


def test_waits_are_counted_in_buckets_and_a_millisecond_is_a_stall():
    loop = Loop()
    run(loop, [(5.0, 1.0), (3e-9, 1.0), (0.9e-3, 1.0), (2e-3, 1.0), (0.5, 1.0)], now=0.0)
    waits = loop.report().waits
    assert waits["stalls"] == 2
    assert waits["stall_s"] == pytest.approx(0.502)
    assert sum(bucket["count"] for bucket in waits["buckets"]) == 4
    edges = [(bucket["from_s"], bucket["to_s"]) for bucket in waits["buckets"]]
    assert all(left[1] == right[0] for left, right in itertools.pairwise(edges))
    assert edges[0][0] <= 3e-9 < edges[0][1]
    assert edges[-1][0] <= 0.5 < edges[-1][1]


def test_marks_are_read_once_the_device_has_reached_them_without_waiting():
    device = Device()
    loop = Loop(device)
    now = 0.0
    # Each step takes 3 s on the device and 1 s on the CPU, so the device lags behind.
    for step in range(4):
        loop.took(now, now + 0.5)
        device.now = 4.0 * step
        loop.compute_begin()
        device.now = 4.0 * step + 3
        loop.compute_end()
        now += 1.0
    loop.end(now)
    assert loop.report().pending == 4
    device.come_to = 7.5
    report = loop.report()
    assert (report.pending, report.compute_s) == (2, 6.0)
    device.come_to = 100.0
    report = loop.report()
    assert (report.pending, report.compute_s, report.clock) == (0, 12.0, "cuda")
    # From the end of the first step's compute, at 3, to the end of the last step's, at 15, in device time.
    assert report.utilisation == 9 / 12
    assert report.compute.mean_s == 3.0


def test_several_marks_in_a_step_add_up():
    device = Device()
    device.come_to = 1e9
    loop = Loop(device)
    for step in range(3):
        loop.took(float(step), step + 0.1)
        for part in (0.2, 0.5):
            device.now = step + part
            with loop.compute():
                device.now += 0.2
    loop.end(3.0)
    report = loop.report()
    assert report.compute_s == pytest.approx(1.2)
    # From the first step's last mark, at 0.7, to 2.7.
    assert report.utilisation == pytest.approx(0.8 / 2.0)


def test_compute_end_without_compute_begin_marks_nothing():
    loop = Loop()
    loop.compute_end()
    assert not loop.report().is_marked


def test_compute_is_marked_even_if_it_raises():
    loop = Loop()
    with pytest.raises(ZeroDivisionError), loop.compute():
        1 / 0  # noqa: B018 (to fail)
    assert loop.report().is_marked


def test_a_long_run_keeps_a_bounded_number_of_steps(monkeypatch):
    monkeypatch.setattr(_loop, "_MOMENTS", 16)
    loop = Loop()
    run(loop, [(0.001, 0.001)] * 1001)
    recent = loop.report().recent
    assert len(recent) <= 16
    assert sum(one["steps"] for one in recent) == 1000


def test_another_thread_can_request_a_report():
    loop = Loop()
    ended = threading.Event()

    def look():
        while not ended.is_set():
            loop.report()

    thread = threading.Thread(target=look)
    thread.start()
    run(loop, [(0.001, 0.001)] * 20_000)
    ended.set()
    thread.join()
    assert loop.report().steps == 20_000
