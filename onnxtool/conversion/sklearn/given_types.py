"""The types in which a sample has its columns: scikit-learn computes in float32 on rows of float32, and NumPy in fewer
digits still on small integers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.frames import as_table
from onnxtool.runtime.data.table import DataTable
from onnxtool.runtime.feeds import adapt

_ROWS = 32  # on which an estimator is tried
# In which arithmetic is as in float64, or exact.
_WIDE = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool))


def given_types(
    sample: Mapping[str, np.ndarray] | DataTable | None,
    inputs: Sequence[TensorSpec],
    blocks: Sequence[Collection[str]] = (),
) -> dict[str, np.dtype]:
    """The types, by input, of those in which an estimator may compute otherwise than in float64.

    Args:
        sample: of rows; a table whose cells are texts or objects has no types.
        inputs: of the ONNX form: a matrix, or a column each.
        blocks: names of the columns that one step is given together.
    """
    if isinstance(sample, DataTable):
        known = {} if sample.is_text else sample.named_for(inputs).dtypes()
    else:
        known = {name: np.asarray(array).dtype for name, array in (sample or {}).items()}
    found = {}
    columns: dict[str, np.dtype] = {}
    for spec in inputs:
        names = next((n for n in (spec.columns, (spec.name,), ("",)) if n and known.keys() >= set(n)), ())
        kinds = {known[name] for name in names or (known if len(inputs) == 1 else ())}
        numbers = spec.dtype in (np.float32, np.float64) and kinds and all(kind.kind in "fiub" for kind in kinds)
        # A matrix has the type that holds those of all its columns, as NumPy promotes them.
        joint = np.result_type(*kinds) if numbers else np.dtype(np.float64)
        columns.update(dict.fromkeys(names if numbers else (), joint))
        if joint not in _WIDE:
            found[spec.name] = joint
    for spec in inputs:
        own = [[columns.get(n, np.dtype(np.float64)) for n in block] for block in blocks if {*spec.columns} & {*block}]
        # Small integers beside floats of float32 are such floats to a step.
        if own and all(np.result_type(*kinds) == np.float32 for kinds in own):
            found[spec.name] = np.dtype(np.float32)
    return found


def first_rows(
    sample: Mapping[str, np.ndarray] | DataTable | None, inputs: Sequence[TensorSpec]
) -> dict[str, np.ndarray]:
    """Some rows of a sample as feeds; {} of none, and of one that does not fit, which is said elsewhere."""
    table = as_table(sample, inputs) or sample if isinstance(sample, Mapping) else sample
    try:
        found = table.first(_ROWS).arrays(inputs) if isinstance(table, DataTable) else adapt(inputs, table or {})
    except InputError:
        return {}
    return {name: array[:_ROWS] for name, array in found.items()}


def in_given_type(values: np.ndarray, kind: np.dtype | None) -> np.ndarray:
    """Numbers in the type of the sample; in float64 where it holds not all of them, and where none is known."""
    wide = values.astype(np.float64) if values.dtype.kind == "f" else values
    if kind is None or wide.dtype.kind not in "fiu":
        return wide
    with np.errstate(all="ignore"):
        narrow = wide.astype(kind)
        held = kind == np.float32 or np.array_equal(narrow.astype(wide.dtype), wide, equal_nan=kind.kind == "f")
    return narrow if held else wide
