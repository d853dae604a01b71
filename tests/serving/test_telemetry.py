"""A reader of the log that stalls delays nobody; what was dropped for it is told."""

from __future__ import annotations

import contextlib
import json
import os
import threading

from onnxtool.serving import telemetry
from onnxtool.serving.telemetry import Log


def test_a_stalled_reader_delays_no_event() -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    log = Log(stream)
    sent = telemetry._MOST_LINES + 2000  # more than the pipe and the queue hold
    done = threading.Event()

    def write() -> None:
        for number in range(sent):
            log.event("request", number=number)
        done.set()

    threading.Thread(target=write, daemon=True).start()
    assert done.wait(60)
    found = list[dict[str, object]]()

    def read() -> None:
        with os.fdopen(reader) as lines:
            found.extend(map(json.loads, lines))

    reading = threading.Thread(target=read)
    reading.start()
    while not log._lines.empty():
        pass
    log.event("last")
    log.close()
    stream.close()
    reading.join(60)
    assert found[-1]["event"] == "last"
    dropped = [e["lines"] for e in found if e["event"] == "log_dropped"]
    numbers = [e["number"] for e in found if e["event"] == "request"]
    assert len(dropped) == 1 and len(numbers) + int(str(dropped[0])) == sent
    assert numbers == list(range(len(numbers)))


def test_a_reader_that_has_gone_ends_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = Log(os.fdopen(writer, "w"))
    for number in range(100):
        log.event("request", number=number)
    log.close()
    assert log._lines.empty()
    stream = log._stream
    assert stream is not None
    with contextlib.suppress(BrokenPipeError):
        stream.close()
