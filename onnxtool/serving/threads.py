"""Threads that are there before they are needed: where the system gives no more of them, nothing is lost for that."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor


def started_threads(count: int, name: str = "") -> ThreadPoolExecutor:
    """So many threads, all of them started."""
    threads = ThreadPoolExecutor(count, thread_name_prefix=name)
    together = threading.Barrier(count)
    list(threads.map(lambda _: together.wait(), range(count)))
    return threads
