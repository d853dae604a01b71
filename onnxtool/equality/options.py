"""What the user asked of `compare`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.equality.trials.trial import Effort


@dataclass(frozen=True)
class CompareOptions:
    """What the user asked for.

    Attributes:
        data: inputs as .npz, folder of .npy, .csv, pictures, or named arrays; without it, seeded random inputs of three
            batch sizes that respect the dtypes, shapes and integer ranges found in the graph.
        rtol: tolerance for floats, relative to each element.
        atol: tolerance for floats, relative to the scale of its column (docs/equality.md).
        seed: of the random inputs.
        names: how to call the two in the report; their paths unless given.
        tolerances: for single outputs, by their name in A.
        batches: batch sizes of the random inputs, one run for each.
        samples: how many runs on random inputs; the sizes go round.
        edge: also run on zeros, extremes and an empty batch; what A itself cannot take is left out, with a warning.
        layers: compare every tensor inside too, and name the first that is wrong. B must be an .onnx file; A may be a
            framework model that shows its layers (PyTorch, Keras).
        bisect: folder for the smallest part that differs, as two models with their inputs; implies `layers`.
        reference: ask ONNX's reference implementation of A, an .onnx file, on the run with the worst element.
        top_k: how many largest elements of each row are held against each other.
        effort: how long further sizes and values are tried where the usual inputs show no difference.
        keep_counterexample: .npz file for an input that these find.
        strict: branches that no input reached make the verdict bad.
        images: how pictures become tensors (see `image_options.parse_options`).
    """

    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None = None
    rtol: float = 1e-3
    atol: float = 1e-5
    seed: int = 0
    names: tuple[str, str] | None = None
    tolerances: Mapping[str, Tolerance] | None = None
    batches: Sequence[int] = ()
    samples: int | None = None
    edge: bool = False
    layers: bool = False
    bisect: str | os.PathLike[str] | None = None
    reference: bool = False
    top_k: int = 5
    effort: Effort = "normal"
    keep_counterexample: str | os.PathLike[str] | None = None
    strict: bool = False
    images: str = ""
