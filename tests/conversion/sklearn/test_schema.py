"""Input schemas read off fitted estimators: columns of text and numbers, gaps, vocabularies; ties are not errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import RandomForestClassifier, VotingClassifier, VotingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import onnxtool
from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.sklearn.schema import schema_of
from onnxtool.conversion.source import Source
from onnxtool.runtime.runner import OnnxRunner


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": generator.integers(18, 80, 150),
            "income": generator.normal(3e4, 1e4, 150),
            "city": generator.choice(["Rome", "Oslo", "Bern"], 150),
            "size": generator.choice(["S", "M"], 150),
            "rooms": generator.integers(1, 5, 150),
        }
    )


@pytest.fixture(scope="module")
def target(people: pd.DataFrame) -> np.ndarray:
    return np.where((people.age > 40) ^ (people.city == "Rome"), "buy", "leave")


def save(model: Any, folder: Path) -> Path:
    skops.io.dump(model, folder / "model.skops")
    return folder / "model.skops"


def feeds_of(people: pd.DataFrame, runner: OnnxRunner) -> dict[str, np.ndarray]:
    kinds = {s.name: object if s.dtype == "string" else s.dtype for s in runner.inputs}
    return {name: people[name].to_numpy().astype(kind).reshape(-1, 1) for name, kind in kinds.items()}


@pytest.mark.parametrize("searched", [False, True])
def test_named_columns_become_inputs_of_their_own_type(
    people: pd.DataFrame, target: np.ndarray, tmp_path: Path, searched: bool
) -> None:
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
            ("words", OneHotEncoder(), ["city", "size"]),
            ("rooms", OneHotEncoder(), ["rooms"]),
        ]
    )
    model: Any = make_pipeline(columns, LogisticRegression())
    if searched:
        model = GridSearchCV(model, {"logisticregression__C": [1.0]}, cv=2)
    model.fit(people, target)
    report = convert(save(model, tmp_path), tmp_path / "out.onnx")
    assert report.ok
    assert [str(i) for i in report.inputs] == [
        "age: float64[batch, 1]",
        "income: float64[batch, 1]",
        "city: string[batch, 1]",
        "size: string[batch, 1]",
        "rooms: int64[batch, 1]",
    ]
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    found = runner.run(feeds_of(people, runner))
    assert found["label"].tolist() == model.predict(people).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(people), rtol=1e-3, atol=1e-5)


def test_columns_that_the_model_drops_are_no_inputs(people: pd.DataFrame, target: np.ndarray, tmp_path: Path) -> None:
    columns = ColumnTransformer([("words", OrdinalEncoder(), ["city"]), ("numbers", StandardScaler(), ["income"])])
    model = make_pipeline(columns, LogisticRegression()).fit(people, target)
    report = convert(save(model, tmp_path), tmp_path / "out.onnx")
    assert report.ok
    assert {i.name for i in report.inputs} == {"city", "income"}


def test_missing_text_is_the_empty_string(people: pd.DataFrame, target: np.ndarray, tmp_path: Path) -> None:
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    model = make_pipeline(ColumnTransformer([("words", words, ["city", "size"])]), LogisticRegression())
    model.fit(people, target)
    report = convert(save(model, tmp_path), tmp_path / "out.onnx")
    assert report.ok
    assert any("empty string" in note for note in report.notes)
    gap = pd.DataFrame({**{c: people[c][:1] for c in people}, "city": [np.nan], "size": ["M"]}, columns=people.columns)
    fed = {"city": np.array([[""]], dtype=object), "size": np.array([["M"]], dtype=object)}
    found = OnnxRunner.open(tmp_path / "out.onnx").run(fed)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(gap), rtol=1e-4)


def test_text_is_verified_on_words_that_the_model_knows(tmp_path: Path) -> None:
    texts = ["good day sunshine", "bad night", "fine day", "awful rainy night"] * 4
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0] * 4)
    report = convert(save(model, tmp_path), tmp_path / "out.onnx")
    assert report.ok
    assert [str(i) for i in report.inputs] == ["text: string[batch]"]
    hints = open_source(tmp_path / "model.skops").feeds_hint
    assert hints is not None
    assert {"sunshine", "awful"} <= set(" ".join(hints["text"].values).lower().split())
    asked = np.array(["GOOD day, sunshine!", "a bad NIGHT"], dtype=object)
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"text": asked})
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(list(asked)), rtol=1e-4)


def test_known_categories_keep_an_encoder_from_refusing_the_rows(people: pd.DataFrame, tmp_path: Path) -> None:
    model = OneHotEncoder(handle_unknown="error").fit(people[["city", "size"]].to_numpy(dtype=object))
    report = convert(save(model, tmp_path), tmp_path / "out.onnx")
    assert report.ok
    assert [str(i) for i in report.inputs] == ["X: string[batch, 2]"]


def test_ties_between_classes_are_left_out_and_said(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(60, 3))
    model = KNeighborsClassifier(n_neighbors=2).fit(x, generator.integers(0, 2, 60))
    source = open_source(save(model, tmp_path))
    rows = generator.normal(size=(40, 3)).astype(np.float32)
    tied = model.predict_proba(rows)[:, 0] == 0.5
    assert 0 < tied.sum() < len(rows)
    kept = source.drop_tied_rows({"X": rows})["X"]  # type: ignore[attr-defined]
    assert kept.shape == rows.shape
    assert not (model.predict_proba(kept)[:, 0] == 0.5).any()
    np.testing.assert_array_equal(kept[~tied], rows[~tied])
    assert any("tie" in note for note in source.notes)


def test_what_was_found_when_ties_were_looked_for_serves_the_run_that_follows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once: who runs a source twice on one input asks whether it repeats itself."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    computed = []
    plain = LogisticRegression.predict_proba
    monkeypatch.setattr(
        LogisticRegression, "predict_proba", lambda m, rows: computed.append(len(rows)) or plain(m, rows)
    )
    source = open_source(save(LogisticRegression().fit(x, x[:, 0] > 0), tmp_path))
    first, other = ({"X": x[:rows].astype(np.float32)} for rows in (8, 5))
    given = source.drop_tied_rows(first)  # type: ignore[attr-defined]
    known = source.run(given)
    assert computed == [8]
    assert len(source.run(other)["label"]) == 5 and len(source.run(given)["label"]) == 8
    np.testing.assert_array_equal(source.run(given)["probabilities"], known["probabilities"])
    source.drop_tied_rows(first)  # type: ignore[attr-defined]
    assert len(source.run(other)["label"]) == 5
    assert computed == [8, 5, 8, 8, 8, 5]


def test_a_soft_vote_converts_though_its_transform_could_not(
    people: pd.DataFrame, target: np.ndarray, tmp_path: Path
) -> None:
    members = [("linear", LogisticRegression()), ("forest", RandomForestClassifier(5, random_state=0))]
    model = VotingClassifier(members, voting="soft").fit(people[["age", "rooms"]], target)
    assert convert(save(model, tmp_path), tmp_path / "out.onnx").ok


def test_each_column_of_a_frame_lies_where_its_training_data_lay() -> None:
    frame = pd.DataFrame(
        {"age": [20.0, 40.0, 60.0, np.nan], "income": [1e4, 2e4, 6e4, 3e4], "size": [0.1, 0.2, 5.0, 1.0]}
    )
    filled = make_pipeline(SimpleImputer(), StandardScaler())
    parts = [("n", filled, ["age", "income"]), ("p", FunctionTransformer(np.log), ["size"])]
    model = ColumnTransformer(parts).fit(frame)
    domains = schema_of(Source(None, model), model, np.dtype("float64")).domains
    assert domains["age"].low < 20 and 60 < domains["age"].high < 100
    assert domains["income"].low < 1e4 and 6e4 < domains["income"].high < 1e5
    assert domains["size"].low > 0


@pytest.mark.parametrize("scaler", [PowerTransformer(), QuantileTransformer(n_quantiles=20), RobustScaler()], ids=str)
def test_a_scaler_tells_where_the_data_lay(scaler: Any) -> None:
    rows = np.random.default_rng(0).normal(1000.0, 5.0, (80, 2))
    model = scaler.fit(rows)
    domain = schema_of(Source(None, model), model, np.dtype("float64")).domains["X"]
    assert 950 < domain.low < 1000 < domain.high < 1050


def test_columns_picked_by_name_inside_another_estimator_are_inputs(
    people: pd.DataFrame, target: np.ndarray, tmp_path: Path
) -> None:
    inner = make_pipeline(ColumnTransformer([("n", StandardScaler(), ["age", "income"])]), LogisticRegression())
    report = convert(CalibratedClassifierCV(inner, cv=2).fit(people, target), tmp_path / "out.onnx", effort="quick")
    assert report.ok and [spec.name for spec in report.inputs] == ["age", "income"]


def hold_equal(model: Any, rows: pd.DataFrame, folder: Path) -> None:
    assert convert(model, folder / "out.onnx", effort="quick").ok
    found, *_ = onnxtool.run(folder / "out.onnx", data=rows).values.values()
    np.testing.assert_allclose(found.ravel(), model.predict(rows), rtol=1e-6)


def by_place(last: Any) -> Any:
    head = [("text", OneHotEncoder(), [2]), ("numbers", StandardScaler(), [1, 4])]
    return make_pipeline(ColumnTransformer(head), last)


@pytest.mark.parametrize(
    "model",
    [
        by_place(Ridge()),
        TransformedTargetRegressor(by_place(Ridge()), func=np.log, inverse_func=np.exp),
        VotingRegressor([("a", by_place(Ridge())), ("b", by_place(DecisionTreeRegressor(max_depth=2)))]),
        GridSearchCV(by_place(Ridge()), {"ridge__alpha": [1.0]}, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_frames_without_names_are_taken_by_place(model: Any, people: pd.DataFrame, tmp_path: Path) -> None:
    rows = people.set_axis(range(5), axis=1)
    hold_equal(model.fit(rows, people.age + people.income), rows, tmp_path)


@pytest.mark.parametrize("gap", [None, np.nan, 0], ids=["None", "NaN", "no gap"])
@pytest.mark.parametrize("kind", [bool, int])
def test_numbers_and_truth_values_as_objects_are_numbers(
    kind: type, gap: Any, people: pd.DataFrame, tmp_path: Path
) -> None:
    flags = [gap if rooms == 3 and gap != 0 else kind(rooms % 2) for rooms in people.rooms]
    rows = people.assign(flag=np.array(flags, object))
    head = [("flag", OneHotEncoder(handle_unknown="ignore"), ["flag"]), ("age", "passthrough", ["age"])]
    hold_equal(make_pipeline(ColumnTransformer(head), Ridge()).fit(rows, people.age + people.rooms), rows, tmp_path)


@pytest.mark.parametrize("encoder", [OneHotEncoder(), OrdinalEncoder()], ids=lambda encoder: type(encoder).__name__)
def test_numbers_are_filled_in_and_encoded(encoder: Any, people: pd.DataFrame, tmp_path: Path) -> None:
    rows = people.assign(rooms=people.rooms.where(people.rooms != 2).astype(float))
    filled = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
    head = ColumnTransformer([("rooms", filled, ["rooms"]), ("age", "passthrough", ["age"])])
    hold_equal(make_pipeline(head, Ridge()).fit(rows, people.age + people.rooms), rows, tmp_path)


@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(handle_unknown="ignore"),
        OneHotEncoder(drop="first"),
        OneHotEncoder(min_frequency=50, handle_unknown="infrequent_if_exist"),
        OrdinalEncoder(),
    ],
    ids=["ignore", "drop", "rare", "ordinal"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_one_encoder_takes_texts_integers_and_fractions(
    encoder: Any, nested: bool, people: pd.DataFrame, tmp_path: Path
) -> None:
    rows = people[["city", "rooms"]].assign(half=(people.rooms / 2).where(people.rooms != 2))
    if isinstance(encoder, OrdinalEncoder):
        rows["half"] = rows.half.fillna(0.25)
    first = make_pipeline(encoder, StandardScaler(with_mean=False)) if nested else encoder
    hold_equal(make_pipeline(first, Ridge()).fit(rows, people.age + people.rooms), rows, tmp_path)


def test_encoders_side_by_side_take_texts(people: pd.DataFrame, tmp_path: Path) -> None:
    both = FeatureUnion([("scaled", "drop"), ("each", OneHotEncoder()), ("number", OrdinalEncoder())])
    head = ColumnTransformer([("words", both, ["city", "size"]), ("numbers", StandardScaler(), ["age"])])
    hold_equal(make_pipeline(head, Ridge()).fit(people, people.age + people.rooms), people, tmp_path)


def test_columns_that_are_called_as_outputs_are(people: pd.DataFrame, target: np.ndarray, tmp_path: Path) -> None:
    rows = people.rename(columns={"age": "label", "city": "probabilities"})
    head = ColumnTransformer([("n", StandardScaler(), ["label"]), ("t", OneHotEncoder(), ["probabilities"])])
    model = make_pipeline(head, LogisticRegression()).fit(rows, target)
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    found = onnxtool.run(tmp_path / "out.onnx", data=rows).values
    assert found["predicted_label"].tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(found["predicted_probabilities"], model.predict_proba(rows), rtol=1e-5)


@pytest.mark.parametrize("label", [3, "only"])
@pytest.mark.parametrize(
    "model",
    [RandomForestClassifier(2), DecisionTreeClassifier(), KNeighborsClassifier()],
    ids=lambda m: type(m).__name__,
)
def test_one_class_is_always_given(model: Any, label: Any, people: pd.DataFrame, tmp_path: Path) -> None:
    rows = people[["age", "income"]]
    model.fit(rows, np.full(len(rows), label))
    assert convert(model, tmp_path / "out.onnx", verify_result=False).ok
    labels, chances = onnxtool.run(tmp_path / "out.onnx", data=rows).values.values()
    assert labels.tolist() == model.predict(rows).tolist()
    np.testing.assert_array_equal(chances, model.predict_proba(rows))
