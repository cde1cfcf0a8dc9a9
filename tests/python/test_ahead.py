"""The thread that sends batches ahead, with a fake core and a fake device."""

import gc
import threading
import time
import weakref

import pytest

import kinograph
from kinograph._ahead import Ahead


class Core:
    """Returns numbered batches until it is closed; fails at one of them if requested."""

    def __init__(self, fails_at=None, ends_at=None):
        self.taken = 0
        self._fails_at, self._ends_at = fails_at, ends_at
        self._closed = threading.Event()

    def next(self):
        if self.taken == self._fails_at:
            raise kinograph.CorruptDataError("page 3 is damaged")
        if self.taken == self._ends_at:
            self._closed.wait()
        if self._closed.is_set():
            return None
        self.taken += 1
        return self.taken - 1, 8 * self.taken - 8, {"x": self.taken - 1}

    def close(self):
        self._closed.set()


class Send:
    """Sends nothing anywhere, and notes which threads had a batch."""

    clock = None

    def __call__(self, batch):
        (number,) = batch.values()
        sender = threading.current_thread()
        return lambda: {"x": number, "sent by": sender, "taken by": threading.current_thread()}


send = Send()


class Slow(Send):
    """Sends once the training loop has waited for a while."""

    ahead = None

    def __call__(self, batch):
        wait_until(lambda: self.ahead is not None and self.ahead._changed._waiters)
        time.sleep(0.05)
        return super().__call__(batch)


def wait_until(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("the condition was never met")


def test_batches_are_sent_in_a_thread_and_taken_in_order():
    ahead = Ahead(Core(), send)
    taken = [ahead.take() for _ in range(50)]
    assert [number for number, _ in taken] == list(range(50))
    assert [batch["x"] for _, batch in taken] == list(range(50))
    assert {batch["taken by"] for _, batch in taken} == {threading.current_thread()}
    assert {batch["sent by"].name for _, batch in taken} == {"kino-copy"}
    ahead.close()


def test_at_most_two_batches_are_in_flight():
    core = Core()
    ahead = Ahead(core, send)
    wait_until(lambda: core.taken == 2)
    time.sleep(0.05)
    assert core.taken == 2
    ahead.take()
    wait_until(lambda: core.taken == 3)
    ahead.close()


def test_an_error_is_raised_after_the_batches_before_it():
    ahead = Ahead(Core(fails_at=3), send)
    assert [ahead.take()[0] for _ in range(3)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(kinograph.CorruptDataError, match="page 3"):
            ahead.take()
    ahead.close()


def test_closing_stops_the_thread_at_any_point():
    for core, taken in ((Core(), 2), (Core(ends_at=1), 1)):
        ahead = Ahead(core, send)
        wait_until(lambda core=core, taken=taken: core.taken == taken)
        ahead.close()
        ahead.close()
        assert not ahead._thread.is_alive()
        with pytest.raises(kinograph.InvalidArgumentError, match="closed"):
            ahead.take()


def test_the_wait_of_the_training_loop_is_measured():
    core = Core(ends_at=0)
    ahead = Ahead(core, send)
    threading.Timer(0.1, core.close).start()
    with pytest.raises(kinograph.InvalidArgumentError, match="closed"):
        ahead.take()
    ahead.close()
    send_later = Slow()
    slow = send_later.ahead = Ahead(Core(), send_later)
    slow.take()
    assert slow.waited_s >= 0.04
    slow.close()


def test_a_batch_that_was_taken_is_not_kept():
    class Memory:
        pass

    kept = []

    class Lend(Send):
        def __call__(self, batch):
            memory = Memory()
            kept.append(weakref.ref(memory))
            return lambda: {"x": memory}

    ahead = Ahead(Core(ends_at=2), Lend())
    wait_until(lambda: len(kept) == 2)
    _, batch = ahead.take()
    del batch
    gc.collect()
    assert kept[0]() is None
    ahead.close()
    gc.collect()
    assert kept[1]() is None


class Marks:
    """A device's clock: a mark is past once the device has come to it, and each is 2 s behind the one before."""

    name = "fake"

    def __init__(self):
        self.marked = self.reached = 0

    def mark(self):
        self.marked += 1
        return self.marked

    def is_past(self, mark):
        return mark <= self.reached

    def seconds(self, start, end):
        return 2.0 * (end - start)


def test_copies_are_metered_by_the_devices_clock_once_they_are_done():
    class Sized:
        nbytes = 7

    class Sized3(Core):
        def next(self):
            answer = super().next()
            return answer and (*answer[:2], {"x": answer[2]["x"], "y": Sized(), "text": ["a"]})

    class OnDevice(Send):
        def __init__(self):
            self.clock = Marks()

        def __call__(self, batch):
            return lambda: batch

    to_device = OnDevice()
    ahead = Ahead(Sized3(ends_at=3), to_device)
    for _ in range(3):
        ahead.take()
    (stage,) = ahead.stages()
    assert (stage.name, stage.busy_s, stage.tasks, stage.bytes) == ("transfer", 0.0, 0, 0)
    to_device.clock.reached = 4
    (stage,) = ahead.stages()
    assert (stage.busy_s, stage.tasks, stage.bytes) == (4.0, 2, 14)
    to_device.clock.reached = 6
    (stage,) = ahead.stages()
    assert (stage.busy_s, stage.tasks, stage.bytes) == (6.0, 3, 21)
    ahead.close()
