"""Names of features and classes in a model's metadata."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import onnxtool
from onnxtool.errors import InputError
from onnxtool.model.spec import KEY, TensorSpec, with_columns, write_columns

SPEC = TensorSpec("X", np.dtype("float32"), ("n", 2))


def test_columns_come_back_from_the_metadata() -> None:
    metadata: dict[str, str] = {}
    write_columns(metadata, [TensorSpec("X", SPEC.dtype, SPEC.shape, ("ä", "b")), TensorSpec("y", SPEC.dtype, ("n",))])
    assert with_columns([SPEC], metadata)[0].columns == ("ä", "b")
    assert with_columns([TensorSpec("X", SPEC.dtype, ("n", 3))], metadata)[0].columns == ()


@pytest.mark.parametrize("junk", ["", "[", "[1]", '{"X": 3}', '{"X": [1, 2]}', '{"X": ["a", null]}', "[" * 100_000])
def test_junk_in_the_metadata_names_nothing(junk: str) -> None:
    assert with_columns([SPEC], {KEY: junk})[0].columns == ()


def test_a_frame_is_taken_by_name_and_classes_name_what_comes_out(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    linear = pytest.importorskip("sklearn.linear_model")
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["width", "height"])
    model = linear.LogisticRegression().fit(frame, np.where(frame.width > frame.height, "wide", "tall"))
    onnxtool.convert(model, tmp_path / "m.onnx", effort="quick")
    swapped = frame[["height", "width"]].set_index(frame.index + 7)
    result = onnxtool.run(tmp_path / "m.onnx", data=swapped, output=tmp_path / "o.jsonl").frame
    assert list(result) == ["label", "probabilities[tall]", "probabilities[wide]"]
    assert list(result.index) == list(swapped.index)
    np.testing.assert_allclose(result.iloc[:, 1:], model.predict_proba(frame), rtol=1e-9)
    assert list(json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])) == list(result)
    columns = {name: swapped[name].tolist() for name in swapped}
    for plain in (columns, swapped.to_dict("records")):
        again = onnxtool.run(tmp_path / "m.onnx", data=plain).frame
        assert again.equals(result.reset_index(drop=True))
    assert onnxtool.run(tmp_path / "m.onnx", data={"X": frame.to_numpy()}).frame is None
    assert onnxtool.compare(model, tmp_path / "m.onnx", data=swapped, effort="quick").ok
    with pytest.raises(InputError, match="no column 'width'"):
        onnxtool.run(tmp_path / "m.onnx", data=frame.rename(columns={"width": "w"}))
