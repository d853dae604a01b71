"""Optimizer state in a SavedModel: not needed for inference, but TensorFlow insists on an object to hang it on."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

# What Keras 2 saved its optimizers as. Only Keras 2 knows how to revive them; without it, tf.saved_model.load fails
# on every model that was saved after training ("'_UserObject' object has no attribute 'add_slot'").
_OPTIMIZER = "optimizer"


@cache
def accept_optimizer_state() -> None:
    """Let tf.saved_model.load read models whose optimizer it does not know. Does nothing where Keras 2 is at work."""
    import tensorflow as tf
    from tensorflow.python.saved_model import revived_types

    class Optimizer(tf.__internal__.tracking.AutoTrackable):  # type: ignore[misc]
        """Holds slot variables, and does nothing with them."""

        def add_slot(self, var: Any, *_: Any, **__: Any) -> Any:
            return tf.Variable(tf.zeros_like(var), trainable=False)

    registration = revived_types.VersionedTypeRegistration(
        object_factory=lambda _: Optimizer(), version=1, min_producer_version=1, min_consumer_version=1
    )
    with suppress(ValueError, AssertionError):  # taken: somebody else reads them
        revived_types.register_revived_type(_OPTIMIZER, lambda obj: isinstance(obj, Optimizer), [registration])
