"""A saved recipe makes the same bytes again, without data, whatever the mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.errors import InputError
from onnxtool.quantization.quantize import quantize
from onnxtool.quantization.recipe import QuantRecipe, dump_recipe

CASES: dict[str, dict[str, Any]] = {
    "static": {"mode": "static"},
    "static with everything": {
        "mode": "static",
        "method": "percentile",
        "smooth": 0.5,
        "equalize": True,
        "bias_correction": True,
    },
    "dynamic": {"mode": "dynamic", "per_channel": False},
    "dynamic, smoothed": {"mode": "dynamic", "smooth": 0.5, "bias_correction": True},
    "float16": {"mode": "float16", "keep_io": True},
    "int8": {"mode": "int8", "block_size": 16},
    "int4": {"mode": "int4", "symmetric": False},
    "auto": {"mode": "auto", "time_limit": 4.0, "smallest": True},
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_replay_gives_the_same_bytes(
    case: str, tmp_path: Path, save: Any, transformer: Any, transformer_data: dict[str, np.ndarray]
) -> None:
    source, recipe = save(transformer), tmp_path / "recipe.json"
    first = quantize(source, tmp_path / "first.onnx", data=transformer_data, recipe_file=recipe, **CASES[case])
    assert first.ok
    kept = recipe.read_bytes()

    again = quantize(source, tmp_path / "again.onnx", recipe_file=recipe)

    assert again.ok
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "first.onnx").read_bytes()
    assert recipe.read_bytes() == kept


def test_a_recipe_for_another_model_is_refused(tmp_path: Path, save: Any, residual: Any) -> None:
    recipe = tmp_path / "recipe.json"
    recipe.write_text(dump_recipe(QuantRecipe(mode="auto", plan={"a node of another model": "static"}, ranges={})))

    with pytest.raises(InputError, match="for another model"):
        quantize(save(residual), tmp_path / "b.onnx", recipe_file=recipe)


def test_a_damaged_recipe_is_refused(tmp_path: Path, save: Any, transformer: Any) -> None:
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"schema": "something/else/1"}))

    with pytest.raises(InputError, match="not a quantization recipe"):
        quantize(save(transformer), tmp_path / "a.onnx", recipe_file=recipe)
