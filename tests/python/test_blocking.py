"""Blocking verbs: from many threads, and with Ctrl-C."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import sbp_native as sbp

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_many_threads_share_a_client(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    threads, each = 16, 50

    def work(number: int) -> list[int]:
        offsets = []
        for step in range(each):
            offsets.append(stream.append(b"%d-%d" % (number, step)).base_offset)
            if step % 10 == 0:
                assert client.ping() > 0
                assert client.stream(name).id == stream.id
        return offsets

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(work, range(threads)))
    assert all(offsets == sorted(offsets) for offsets in results), "each thread's own appends are in order"
    assert sorted(offset for offsets in results for offset in offsets) == list(range(threads * each))
    values = [record.value for batch in stream.read() for record in batch.records()]
    for number in range(threads):
        own = [value for value in values if value is not None and value.startswith(b"%d-" % number)]
        assert own == [b"%d-%d" % (number, step) for step in range(each)]


def test_a_waiting_call_lets_other_threads_run(client: sbp.Client, name: str) -> None:
    tail = client.create_stream(name).tail()
    got: list[sbp.Batch] = []
    reader = threading.Thread(target=lambda: got.append(next(tail)))
    reader.start()
    for _ in range(20):
        assert client.ping() > 0
    assert client.stream(name).append(b"x").base_offset == 0
    reader.join(20)
    assert [batch.base_offset for batch in got] == [0]


def test_several_threads_step_through_one_tail(client: sbp.Client, name: str) -> None:
    stream = client.create_stream(name)
    tail = stream.tail()
    for n in range(40):
        stream.append(b"%d" % n)
    lock = threading.Lock()
    got: list[int] = []

    def work() -> None:
        for batch in tail:
            with lock:
                got.extend(batch.offsets)
                if len(got) >= 40:
                    tail.close()
                    return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(got) == list(range(40))


INTERRUPTED = """
    import os, signal, sys, threading, time
    import sbp_native as sbp

    sent = 0.0
    main = threading.get_ident()

    def interrupt():
        global sent
        while sys._current_frames()[main].f_code.co_name != "wait_for_a_batch":
            time.sleep(0.001)
        time.sleep(0.005)
        sent = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    def wait_for_a_batch(tail):
        next(tail)

    with sbp.connect(sys.argv[1]) as client:
        stream = client.create_stream(sys.argv[2])
        took = []
        for _ in range(int(sys.argv[3])):
            tail = stream.tail()
            interrupter = threading.Thread(target=interrupt)
            interrupter.start()
            try:
                wait_for_a_batch(tail)
            except KeyboardInterrupt:
                took.append(time.monotonic() - sent)
            interrupter.join()
            tail.close()
        assert client.ping() > 0, "the client goes on"
        assert stream.append(b"x").base_offset == 0
        took.sort()
        print(len(took), took[len(took) // 2], took[len(took) * 99 // 100 - 1])
"""


@pytest.mark.alone
def test_ctrl_c_ends_a_wait(server: sbp.Server, name: str, run_python: Run) -> None:
    done = run_python(INTERRUPTED, server.address, name, "100", timeout=55)
    count, median, slow = done.stdout.split()
    assert count == "100"
    assert float(median) < 0.030, "a signal wakes the waiting thread; the next look at signals is some 45 ms away"
    assert float(slow) < 0.150


def test_a_handler_may_call_us_and_the_wait_goes_on(server: sbp.Server, name: str, run_python: Run) -> None:
    script = """
        import os, signal, sys, threading, time
        import sbp_native as sbp

        with sbp.connect(sys.argv[1]) as client, sbp.connect(sys.argv[1]) as other:
            stream = client.create_stream(sys.argv[2])
            tail = stream.tail()

            def handler(*_):
                print(other.stream(sys.argv[2]).append(b"from the handler").base_offset)

            signal.signal(signal.SIGUSR1, handler)
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            print(bytes(next(tail).payloads[0]).decode())
    """
    assert run_python(script, server.address, name).stdout.split("\n")[:2] == ["0", "from the handler"]


def test_io_threads_never_attach() -> None:
    """The guard is there in release builds too, which is what the installed wheel is."""
    from sbp_native import _native

    assert not _native.io_threads_attach()
