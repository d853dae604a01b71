"""A worker process of a build: `python -m onnxtool.workflow.worker` reads steps, pickled, from its parent.

Native code is watched in it as in a command: a step that crashes the process, or takes it over the limits, fails alone.
When its parent is gone it finishes its step, which is then in the cache, and ends.
"""

from __future__ import annotations

import os
import pickle
import sys

from onnxtool.errors import InputError, UnsupportedError
from onnxtool.model.safety import limits
from onnxtool.runtime.worker import isolation


def _work() -> None:
    source = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # native code may print
    bounds, supervised = pickle.load(source)
    for name, value in bounds.items():
        setattr(limits.DEFAULT, name, value)
    if supervised:
        isolation.supervise(_fail)
        if isolation.crashed_before():
            _fail("native code crashed on random inputs; give real ones with data.", InputError.exit_code)
            sys.exit(InputError.exit_code)
        if said := isolation.unsettled_crash():
            _fail(said, UnsupportedError.exit_code)
            sys.exit(UnsupportedError.exit_code)
    _discard_errors()
    from onnxtool.workflow.run_step import run_step

    while True:
        try:
            task = pickle.load(source)
        except EOFError:
            return
        pickle.dump(run_step(task), answers)
        answers.flush()


def _discard_errors() -> None:
    """What libraries print would fill the pipe, which nobody reads while a step runs; the parent still tells why it
    ended the child.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _fail(line: str, _: int) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    _work()
