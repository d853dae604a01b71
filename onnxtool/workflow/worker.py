"""A worker process of a build: `python -m onnxtool.workflow.worker` runs steps for its parent.

When its parent is gone it finishes its step, which is then in the cache, and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxtool.runtime.worker.tasks import run_tasks

if TYPE_CHECKING:
    from onnxtool.workflow.run_step import StepResult, StepTask


def _runner(_: None) -> Callable[[StepTask], StepResult]:
    from onnxtool.workflow.run_step import run_step

    return run_step


if __name__ == "__main__":
    run_tasks(_runner)
