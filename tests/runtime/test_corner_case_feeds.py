"""Edge inputs: what they hold, and that integers stay in their domain."""

from __future__ import annotations

import numpy as np

from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import edge_feeds

FLOAT = TensorSpec("x", np.dtype("float32"), ("n", 3))
INDEX = TensorSpec("i", np.dtype("int64"), ("n",))


def test_values_and_shapes() -> None:
    cases = dict(edge_feeds([FLOAT, INDEX], {"i": Domain(0, 7)}))
    assert set(cases) == {"zeros", "smallest", "largest", "alternating", "empty batch"}
    assert not cases["zeros"]["x"].any()
    assert cases["smallest"]["x"].max() < -1000
    assert cases["largest"]["i"].tolist() == [6, 6]
    assert cases["alternating"]["i"].tolist() == [0, 6]
    assert {a.shape for a in cases["empty batch"].values()} == {(0, 3), (0,)}
    assert all(a.dtype == s.dtype for c in cases.values() for s in (FLOAT, INDEX) for a in [c[s.name]])


def test_zero_outside_the_domain_is_its_nearest_value() -> None:
    cases = dict(edge_feeds([TensorSpec("m", np.dtype("int64"), (2,))], {"m": Domain(1, 2)}))
    assert cases["zeros"]["m"].tolist() == [1, 1]
    assert "empty batch" not in cases


def test_what_is_no_tensor_has_no_edge() -> None:
    assert edge_feeds([TensorSpec("s", "sequence", None)]) == []
