"""Values of further inputs: each kind is made, within what an input may take."""

from __future__ import annotations

import inspect

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.trials import values
from onnxtool.equality.trials.graph_hints import GraphHints, read_facts
from onnxtool.equality.trials.trial import is_mask
from onnxtool.equality.trials.values import padded, value_changes
from onnxtool.model.domains import Domain
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import TrialKind

FLOAT, INT, BYTE, BOOL = (np.dtype(t) for t in ("float32", "int64", "uint8", "bool"))


def changes(
    specs: list[TensorSpec], feeds: dict[str, np.ndarray], facts: GraphHints | None = None
) -> dict[str, dict[str, np.ndarray]]:
    found = value_changes(specs, feeds, facts or GraphHints(), np.random.default_rng(0))
    return {label: made for label, _, made in found}


def floats(facts: GraphHints | None = None, shape: tuple[int, ...] = (4, 8)) -> dict[str, np.ndarray]:
    spec = TensorSpec("x", FLOAT, ("b", *shape[1:]))
    return {k: v["x"] for k, v in changes([spec], {"x": np.ones(shape, np.float32)}, facts).items()}


def integers(facts: GraphHints | None = None, dtype: np.dtype = INT, name: str = "ids") -> dict[str, np.ndarray]:
    spec = TensorSpec(name, dtype, ("b", "n"))
    return {k: v[name] for k, v in changes([spec], {name: np.ones((2, 16), dtype)}, facts).items()}


def test_floats_of_all_scales_and_signs() -> None:
    made = floats()
    assert 500 < np.abs(made["values of scale 1000"]).max() < 6000
    assert made["values below zero"].max() <= 0
    assert made["values above zero"].min() >= 0
    assert not made["zeros"].any()
    assert set(np.unique(made["equal values"])) == {1.0}
    assert 0 < made["values from 0 to 1"].min() < made["values from 0 to 1"].max() < 1
    bytes_made = made["values from 0 to 255"]
    assert bytes_made.min() >= 0
    assert bytes_made.max() <= 255
    assert (bytes_made == np.floor(bytes_made)).all()
    assert (np.diff(made["values in ascending order"], axis=-1) >= 0).all()
    small = np.abs(made["values of scale 1e-7 and far below"]).reshape(-1)
    for first, scale in enumerate((1e-7, 1e-21, 1e-35)):
        assert 0.1 * scale < small[first::3].mean() < small[first::3].max() < 6 * scale
    assert 0.5 < (made["mostly zeros"] == 0).mean() < 1
    assert set(np.abs(made["values of 10,000 and -10,000"]).reshape(-1)) == {10_000}
    assert 10 < np.abs(made["values of scale 30"]).mean() < 60
    assert 3e-4 < np.abs(made["values of scale 0.001"]).mean() < 3e-3
    assert -600 < made["values below zero, of scale 100"].min() < -50
    assert made["values below zero, of scale 100"].max() < 0
    assert 50_000 < np.abs(made["values of scale 100,000"]).max() < 600_000
    hundred = made["one value of 100 among small ones"]
    assert (hundred == 100).sum() == 1
    assert 0.05 < np.median(np.abs(hundred)) < np.sort(np.abs(hundred).reshape(-1))[-2] < 0.5
    assert all(array.dtype == FLOAT and array.shape == (4, 8) for array in made.values())


def test_both_sides_of_numbers_that_graphs_compare_with() -> None:
    made = floats(GraphHints(values=[40.0, -7.0]))
    assert made["values above 40"].mean() > 50
    assert made["values below 40"].mean() < 30
    assert (made["values of exactly 40"] == 40).all()
    around = made["values around 40"]
    assert around.min() < 40 < around.max()
    between = made["values between -7 and 40"]
    assert -7 < between.min() < between.max() < 40
    assert between.max() - between.min() > 38
    assert 5 < around.std() < 12
    assert 60 < made["values above 40"].mean() < 70
    assert 0.1 < floats(GraphHints(values=[0.001]))["values around 0.001"].std() < 0.4


def test_a_positive_domain_is_kept() -> None:
    made = floats(GraphHints(domains={"x": Domain(0.05, 1.0)}))
    finite = [a[np.isfinite(a)] for a in made.values() if "feature" not in str(a)]
    assert all((a >= 0).all() for k, a in made.items() if k.startswith("values of scale"))
    assert finite


def test_missing_values_are_some_and_never_all() -> None:
    for label, test in (("some values NaN", np.isnan), ("some values infinity", np.isposinf)):
        array = floats()[label]
        assert 0 < test(array).sum() < array.size


def test_integers_of_all_sizes() -> None:
    made = integers()
    assert made["integers from -100 to 100"].min() < 0
    assert 1000 < made["integers up to 100,000"].max() < 100_000
    assert made["integers above 2^24"].min() >= 1 << 24
    assert made["integers above 2^31"].min() >= 1 << 31
    for number in (0, 1, -1, 2, 7):
        assert (made[f"integers of {number}"] == number).all()
    asked = integers(GraphHints(integers=[37]))
    assert {"integers of 36", "integers of 37", "integers of 38"} <= set(asked)


def test_small_types_stay_within_themselves() -> None:
    made = integers(dtype=BYTE, name="x")
    assert "integers above 2^24" not in made
    assert made["all integers of the type"].max() > 200


def test_counts_try_both_sides_of_a_number() -> None:
    spec = TensorSpec("k", INT, ())
    facts = GraphHints(structural={"k"}, sizes=[700])
    made = changes([spec], {"k": np.array(3)}, facts)
    assert {0, 1, 2, 700, 701} <= {int(m["k"]) for m in made.values()}


def test_a_count_stays_within_reason() -> None:
    spec = TensorSpec("k", INT, ())
    made = changes([spec], {"k": np.array(3)}, GraphHints(structural={"k"}, sizes=[4096, 10_001]))
    counts = {int(m["k"]) for m in made.values()}
    assert max(counts) == 2 * 4096


def test_booleans_are_all_true_and_all_false() -> None:
    specs = [TensorSpec("f", BOOL, (1,)), TensorSpec("g", BOOL, (1,))]
    made = changes(specs, {"f": np.array([True]), "g": np.array([False])})
    seen = {(bool(m["f"][0]), bool(m["g"][0])) for m in made.values()}
    assert seen == {(True, True), (False, False), (True, False), (False, True)} or len(seen) >= 3


def test_texts_are_known_unknown_empty_and_foreign() -> None:
    spec = TensorSpec("t", "string", ("b", 1))
    made = changes([spec], {"t": np.array([["a"]] * 40, dtype=object)}, GraphHints(texts=["cat", "dog"]))
    assert {"cat", "dog"} <= set(made["known words"].get("t").reshape(-1))
    assert {"CAT", "DOG", "cat ", "dog "} <= set(made["words next to known ones"]["t"].reshape(-1))
    assert "" in made["empty texts"]["t"]
    assert any(not word.isascii() for word in made["accents"]["t"].reshape(-1))
    assert any(not word.isascii() for word in made["emoji"]["t"].reshape(-1))


@pytest.mark.parametrize("length", [1, 2, 9, 30])
@pytest.mark.parametrize("kind", ["padded on the right", "padded on the left", "of random ones"])
def test_padding_leaves_something_in_each_row(kind: str, length: int) -> None:
    mask = padded((4, length), kind)
    assert set(np.unique(mask)) <= {0, 1}
    assert (mask.sum(axis=1) >= 1).all()
    if length > 2 and "padded" in kind:
        assert len(set(mask.sum(axis=1))) == 2
        ends = mask[:, 0] if "right" in kind else mask[:, -1]
        assert (ends == 1).all()
        assert (mask[:, -1 if "right" in kind else 0] == 0).all()


def test_one_row_may_be_empty() -> None:
    mask = padded((3, 5), "with an empty row")
    assert mask.sum(axis=1).tolist() == [5, 5, 0]


def test_thresholds_are_met_exactly_and_passed_by_one_step() -> None:
    """Each of them, however many there are: a tree and one whose threshold is a step above part at one number."""
    thresholds = np.arange(100.5, 150).astype(np.float32)
    facts = GraphHints(thresholds={"x": {2: thresholds.astype(np.float64), 1: np.array([1234.5])}})
    spec = TensorSpec("x", FLOAT, ("b", 4))
    made = changes([spec], {"x": np.zeros((2, 4), np.float32)}, facts)
    near = made["x: features at thresholds"]["x"]
    around = [np.nextafter(np.float32(t), np.float32(e)) for t in thresholds for e in (t, np.inf, -np.inf)]
    assert set(around) <= set(near[:, 2])
    assert np.float32(1234.5) in near[:, 1]
    over = made["x: each feature over its own range"]["x"][:, 1]
    assert over.min() < 1234.5 < over.max()


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "expected"),
    [
        ("attention_mask", INT, ("b", "n"), True),
        ("attention_mask", INT, ("b",), False),
        ("ids", INT, ("b", "n"), False),
        ("pixel_mask", BOOL, ("b", "n"), True),
    ],
)
def test_what_a_mask_is(name: str, dtype: np.dtype, shape: tuple[str, ...], expected: bool) -> None:
    assert is_mask(TensorSpec(name, dtype, shape)) is expected


def changed_by(text: str, **feeds: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Changed inputs of a graph, by label."""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    found = value_changes(input_specs(model), feeds, read_facts(model), np.random.default_rng(0))
    return {label: made for label, _, made in found}


def test_orders_of_numbers_and_rows() -> None:
    x = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    made = changed_by("g (float[b,5] x) => (float[b,5] y) { y = Neg(x) }", x=x)
    assert (np.diff(made["values in descending order"]["x"], axis=1) < 0).all()
    assert (np.diff(made["rows in ascending order"]["x"], axis=0) > 0).all()
    assert np.signbit(made["zeros below zero"]["x"]).all()
    assert (made["rows alike"]["x"] == x[0]).all()
    assert np.isnan(made["a row of NaN"]["x"][0]).all()
    assert not np.isnan(made["a row of NaN"]["x"][1:]).any()
    assert np.isnan(made["nothing but NaN"]["x"]).all()


def test_inputs_alike_and_missing_in_one_of_them() -> None:
    generator = np.random.default_rng(1)
    x, z = generator.standard_normal((2, 3, 4)).astype(np.float32)
    made = changed_by("g (float[b,4] x, float[b,4] z) => (float[b,4] y) { y = Add(x, z) }", x=x, z=z)
    assert (made["inputs alike"]["z"] == x).all()
    assert not made["zeros but for x"]["z"].any() and (made["zeros but for x"]["x"] == x).all()
    assert np.isnan(made["z: some values NaN"]["z"]).any()
    assert not np.isnan(made["z: some values NaN"]["x"]).any()


def test_masks_of_other_numbers_are_of_a_kind_of_their_own() -> None:
    text = "g (int64[b,n] attention_mask) => (int64[b,n] y) { y = Neg(attention_mask) }"
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    feeds = {"attention_mask": np.ones((2, 6), np.int64)}
    found = value_changes(input_specs(model), feeds, read_facts(model), np.random.default_rng(0))
    held = [set(made["attention_mask"].ravel()) for _, kind, made in found if kind == "mask values"]
    assert held == [{0, 2}, {0, -1}]


def test_numbers_nearly_alike_shares_and_halves() -> None:
    made = floats()
    pairs = made["values in pairs nearly alike"]
    np.testing.assert_allclose(pairs[:, 1::2] / pairs[:, 0::2], 1 + 2.0**-12, rtol=1e-6)
    assert (pairs[:, 1::2] != pairs[:, 0::2]).all()
    shares = made["probabilities"]
    assert shares.min() > 0
    assert shares.max() < 0.95
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    ends = made["values that end on a half"]
    assert {*np.unique(np.abs(ends % 2))} == {0.5, 1.5}  # behind even numbers and behind odd ones
    halves = made["values that end on a half of a power of two"]
    steps = 2.0 ** -np.arange(9.0)
    whole = np.stack([halves / step - np.trunc(halves / step) for step in steps])
    assert (np.abs(whole) == 0.5).any(axis=0).all() and (np.abs(whole) == 0.5).any(
        axis=tuple(range(1, whole.ndim))
    ).all()
    assert len(np.unique(halves)) > 3
    assert np.abs(halves).max() <= 20


def test_halves_behind_even_and_odd_numbers_however_few() -> None:
    for count in (1, 2, 3):
        runner = [TensorSpec("x", np.dtype("float32"), (count,))]
        made = value_changes(runner, {"x": np.ones(count, np.float32)}, GraphHints(), np.random.default_rng(0))
        found = [m["x"] for label, _, m in made if label.startswith("values that end on a half")]
        assert {float(np.floor(x.flat[0]) % 2) for x in found} == {0.0, 1.0}


def test_an_odd_last_number_stays() -> None:
    assert floats(shape=(4, 3))["values in pairs nearly alike"].shape == (4, 3)


def test_a_number_without_dims_is_changed_too() -> None:
    spec = TensorSpec("t", FLOAT, ())
    made = {label: feeds["t"] for label, feeds in changes([spec], {"t": np.array(1.0, np.float32)}).items()}
    assert {a.shape for a in made.values()} == {()}
    assert made["zeros"] == 0
    assert "values in ascending order" in made


def test_halves_are_exact_whatever_rounding_does() -> None:
    spec = TensorSpec("x", FLOAT, ("b", 4))
    kinds = {
        label: kind
        for label, kind, _ in value_changes(
            [spec], {"x": np.ones((2, 4), np.float32)}, GraphHints(), np.random.default_rng(0)
        )
    }
    assert kinds["values that end on a half"] == "thresholds"
    assert kinds["values that end on a half of a power of two"] == "thresholds"
    assert kinds["values of scale 30"] == "values"


def test_nan_and_both_infinities_stand_beside_one_another() -> None:
    array = floats(shape=(16, 8))["some values NaN and infinity"]
    assert np.isnan(array).any() and np.isposinf(array).any() and np.isneginf(array).any() and np.isfinite(array).any()


def test_a_mask_of_every_other_position() -> None:
    assert padded((2, 5), "of every other one").tolist() == [[1, 0, 1, 0, 1]] * 2


def test_extreme_values_are_of_a_kind_of_their_own() -> None:
    def kinds(facts: GraphHints, dtype: np.dtype = FLOAT) -> dict[str, str]:
        own = TensorSpec("x", dtype, ("b", 4))
        feeds = {"x": np.ones((2, 4), dtype)}
        return {label: kind for label, kind, _ in value_changes([own], feeds, facts, np.random.default_rng(0))}

    assert kinds(GraphHints())["values of scale 1e+20"] == "extreme values"
    assert 1e19 < np.abs(floats()["values of scale 1e+20"]).max() < 1e21
    assert kinds(GraphHints())["values around 1,000, close together"] == "extreme values"
    far = floats()["values around 1,000, close together"]
    assert abs(far.mean() - 1000) < 1
    assert 0.3 < far.std() < 3
    assert "values of scale 1e+20" not in kinds(GraphHints(endless=True))
    assert "values of scale 1e+20" not in kinds(GraphHints(domains={"x": Domain(0, 1)}))
    assert "values of scale 1e+20" not in kinds(GraphHints(), np.dtype("float16"))


def within(domain: Domain) -> dict[str, np.ndarray]:
    return floats(GraphHints(domains={"x": domain}))


def test_values_for_a_domain_below_zero_lie_around_its_middle() -> None:
    made = within(Domain(-30.0, -10.0))
    assert (made["zeros"] == -20).all()
    assert (made["equal values"] == -10).all()
    assert made["values below zero"].max() <= -20
    assert np.abs(made["values of scale 100,000"] + 20).max() == 10_000


@pytest.mark.parametrize(
    "domain", [Domain(0.0, 1.0), Domain(-1.0, 1.0), Domain(-np.inf, np.inf), Domain(-np.inf, -5.0), Domain(-7.0, -7.0)]
)
def test_a_domain_about_zero_without_an_end_or_of_one_number_changes_nothing(domain: Domain) -> None:
    assert not within(domain)["zeros"].any()
    assert within(domain)["values of scale 30"].min() < -10


def test_positive_values_grow_with_their_domain() -> None:
    made = within(Domain(0.5, 4.0))["values of scale 30"]
    assert made.min() >= 0
    assert 50 < made.mean() < 200


def test_rows_are_alike_wherever_there_are_rows_and_masks_and_texts_stay() -> None:
    specs = [
        TensorSpec("x", FLOAT, ("b", 3)),
        TensorSpec("t", FLOAT, ("b",)),
        TensorSpec("word", np.dtype(object), ("b", 3)),
        TensorSpec("empty", FLOAT, ("b", 0)),
        TensorSpec("x_mask", FLOAT, ("b", 3)),
    ]
    generator = np.random.default_rng(2)
    feeds = {
        "x": generator.random((4, 3)).astype(np.float32),
        "t": generator.random(4).astype(np.float32),
        "word": generator.choice(np.array(["a", "b"], object), (4, 3)),
        "empty": np.zeros((4, 0), np.float32),
        "x_mask": np.eye(4, 3, dtype=np.float32),
    }
    made = changes(specs, feeds)
    assert (made["rows alike"]["x"] == feeds["x"][0]).all()
    assert (made["rows alike"]["t"] == feeds["t"][0]).all()
    assert (made["rows alike"]["word"] == feeds["word"]).all()
    assert (made["rows alike"]["x_mask"] == feeds["x_mask"]).all()
    assert "inputs alike" not in made


def test_a_single_row_is_not_made_alike() -> None:
    spec = TensorSpec("x", FLOAT, (1, 3))
    assert "rows alike" not in changes([spec], {"x": np.ones((1, 3), np.float32)})


def test_booleans_are_set_together_and_each_by_itself() -> None:
    specs = [TensorSpec("f", BOOL, (2,)), TensorSpec("g", BOOL, (2,))]
    feeds = {"f": np.array([True, False]), "g": np.array([False, True])}
    made = changes(specs, feeds)
    for value in (True, False):
        assert all((array == value).all() for array in made[f"booleans all {value}"].values())
        assert (made[f"g {value}"]["g"] == value).all()
        assert (made[f"g {value}"]["f"] == feeds["f"]).all()
    alone = changes(specs[:1], {"f": feeds["f"]})
    assert not any(label.startswith("f ") for label in alone)


@pytest.mark.parametrize(
    ("thresholds", "low", "high"), [([8.0], 4.0, 12.0), ([0.0], -1.0, 1.0), ([10.0, 14.0], 9.0, 15.0)]
)
def test_a_feature_goes_a_little_beyond_its_thresholds(thresholds: list[float], low: float, high: float) -> None:
    facts = GraphHints(thresholds={"x": {1: np.array(thresholds)}})
    made = changes([TensorSpec("x", FLOAT, ("b", 4))], {"x": np.zeros((2, 4), np.float32)}, facts)
    own = made["x: each feature over its own range"]["x"][:, 1]
    assert low <= own.min() < low + 0.1 * (high - low) and high - 0.1 * (high - low) < own.max() <= high


def test_a_batch_of_thresholds_is_as_large_as_the_inputs_allow() -> None:
    facts = GraphHints(thresholds={"x": {1: np.array([8.0])}})
    specs = [TensorSpec("x", FLOAT, ("b", 4)), TensorSpec("z", FLOAT, ("b", 2)), TensorSpec("fixed", FLOAT, (3,))]
    feeds = {"x": np.zeros((2, 4), np.float32), "z": np.ones((2, 2), np.float32), "fixed": np.ones(3, np.float32)}
    made = changes(specs, feeds, facts)["x: features at thresholds"]
    assert made["z"].shape == (len(made["x"]), 2)
    assert len(made["x"]) > 2
    assert made["fixed"].shape == (3,)
    whole = changes([TensorSpec("x", FLOAT, (3, 4))], {"x": np.zeros((3, 4), np.float32)}, facts)
    assert whole["x: features at thresholds"]["x"].shape == (3, 4)


def test_thresholds_of_a_feature_that_the_input_lacks_are_left_alone() -> None:
    facts = GraphHints(thresholds={"x": {4: np.array([8.0])}})
    made = changes([TensorSpec("x", FLOAT, ("b", 4))], {"x": np.zeros((2, 4), np.float32)}, facts)
    assert "x: features at thresholds" not in made


def test_known_words_are_tried_in_sixteen_parts_at_most() -> None:
    words = [f"word{i}" for i in range(40)]
    made = changes([TensorSpec("t", "string", (2,))], {"t": np.array(["a", "b"], object)}, GraphHints(texts=words))
    parts = [label for label in made if label.startswith("known words")]
    assert len(parts) == 16
    seen = {word for label in parts for word in made[label]["t"]}
    assert len(seen) == 32


@pytest.mark.parametrize("side", ["right", "left"])
def test_every_other_row_is_padded_twice_as_much(side: str) -> None:
    assert padded((2, 9), f"padded on the {side}").sum(axis=1).tolist() == [6, 3]
    assert padded((2, 2), f"padded on the {side}").sum(axis=1).tolist() == [1, 1]
    assert padded((2, 1), f"padded on the {side}").sum(axis=1).tolist() == [1, 1]


def test_inputs_of_another_type_or_one_input_are_not_made_alike() -> None:
    specs = [TensorSpec("x", FLOAT, ("b", 3)), TensorSpec("z", np.dtype("float64"), ("b", 3))]
    feeds = {"x": np.ones((2, 3), np.float32), "z": np.zeros((2, 3))}
    assert "inputs alike" not in changes(specs, feeds)
    assert "inputs alike" not in changes(specs[:1], feeds)


def test_a_vector_has_no_rows() -> None:
    made = changes([TensorSpec("x", FLOAT, ("n",))], {"x": np.arange(5, dtype=np.float32)})
    assert not {"rows alike", "a row of NaN", "a column of NaN", "nothing but NaN"} & set(made)
    assert "some values NaN" in made


def test_thresholds_are_met_and_passed_in_turns_and_other_features_are_usual() -> None:
    found = np.arange(100, 180).astype(np.float64)
    facts = GraphHints(thresholds={"x": {0: found, 2: found + 0.5}}, missing=True)
    made = changes([TensorSpec("x", FLOAT, ("b", 4))], {"x": np.zeros((2, 4), np.float32)}, facts)
    near = made["x: features at thresholds"]["x"][:, 0]
    assert np.isin(near, found).sum() > 10
    assert np.isin(near, np.nextafter(found.astype(np.float32), np.float32(np.inf))).sum() > 10
    other = made["x: each feature over its own range"]["x"][:, 3]
    assert 0.8 < other.std() < 1.2
    holed = np.isnan(made["x: missing values"]["x"])
    assert 0.2 < holed.mean() < 0.4


def test_thresholds_are_tried_in_twelve_batches_at_most() -> None:
    facts = GraphHints(thresholds={"x": {1: np.arange(10.0)}})
    spec = TensorSpec("x", FLOAT, (1, 4))
    found = value_changes([spec], {"x": np.zeros((1, 4), np.float32)}, facts, np.random.default_rng(0))
    assert [label for label, *_ in found].count("x: features at thresholds") == 12


def test_a_threshold_of_a_feature_beyond_the_input_silences_the_others() -> None:
    facts = GraphHints(thresholds={"x": {1: np.array([8.0]), 4: np.array([8.0])}})
    made = changes([TensorSpec("x", FLOAT, ("b", 4))], {"x": np.zeros((2, 4), np.float32)}, facts)
    assert "x: features at thresholds" not in made


def test_new_words_stand_beside_the_usual_ones() -> None:
    spec = TensorSpec("t", "string", ("b", 1))
    made = changes([spec], {"t": np.array([["usual"]] * 40, dtype=object)})
    for label in ("unknown words", "empty texts", "accents"):
        assert 2 < (made[label]["t"] == "usual").sum() < 30


def texts(facts: GraphHints, shape: tuple[int, ...] = (40,)) -> dict[str, np.ndarray]:
    spec = TensorSpec("t", "string", ("b",))
    return {k: v["t"] for k, v in changes([spec], {"t": np.full(shape, "alpha", object)}, facts).items()}


def test_texts_of_several_parts() -> None:
    made = texts(GraphHints(delimiters=[";"], texts=["known"]))["texts of several parts with ';' between"]
    assert {text.count(";") for text in made} >= {0, 3, 6}
    assert any("known" in text for text in made)


def test_texts_that_match_a_pattern_and_nearly() -> None:
    made = texts(GraphHints(patterns=["[0-9]{4}"]))
    assert all(len(t) == 4 and t.isdigit() for t in made["texts that match '[0-9]{4}'"])
    assert not all(len(t) == 4 and t.isdigit() for t in made["texts that nearly match '[0-9]{4}'"])
    assert not any("match" in label for label in texts(GraphHints(patterns=["(a"])))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32", "bool"])
def test_an_input_without_dims_stays_an_array(dtype: str) -> None:
    spec, facts = TensorSpec("n", np.dtype(dtype), ()), GraphHints(integers=[3], sizes=[5])
    feeds = {"n": np.ones((), dtype)}
    found = list(value_changes([spec], feeds, facts, np.random.default_rng(0)))
    assert found
    for label, _, made in found:
        assert isinstance(made["n"], np.ndarray), label
        assert made["n"].shape == () and made["n"].dtype == dtype, label


def test_every_input_of_every_kind_is_among_them() -> None:
    """A kind that is left out would be a kind of difference that no proof finds."""
    specs = [
        TensorSpec("x", FLOAT, ("b", 8)),
        TensorSpec("z", FLOAT, ("b", 8)),
        TensorSpec("ids", INT, ("b", 4)),
        TensorSpec("count", INT, ()),
        TensorSpec("flag", BOOL, ("b",)),
        TensorSpec("words", "string", ("b",)),
        TensorSpec("attention_mask", INT, ("b", 4)),
    ]
    feeds = {
        **{n: np.ones((2, 8), np.float32) for n in ("x", "z")},
        **{n: np.ones((2, 4), np.int64) for n in ("ids", "attention_mask")},
        "count": np.array(3),
        "flag": np.array([True, False]),
        "words": np.array(["a", "b"], object),
    }
    facts = GraphHints(
        values=[0.5, 2.0], integers=[3, 4], texts=["a"], structural={"count"}, thresholds={"x": {0: np.array([0.5])}}
    )
    known = {(label, kind) for label, kind, _ in value_changes(specs, feeds, facts, np.random.default_rng(0))}
    for kind in (
        *(values._masks, values._booleans, values._alike),
        *(values.counts, values.in_order),
        *(values.integer_values, values.named_numbers, values.text_values, values._thresholds, values._floats),
        values.missing_values,
    ):
        given = {"specs": specs, "feeds": feeds, "facts": facts, "generator": np.random.default_rng(0)}
        own = [*kind(**{n: given[n] for n in inspect.signature(kind).parameters})]
        assert own and {(label, what) for label, what, _ in own} <= known, kind
    endless = GraphHints(endless=True)
    assert not any("NaN" in label or "infinity" in label for label in changes(specs, feeds, endless))


def test_which_inputs_are_judged_otherwise() -> None:
    """A mask that leaves nothing in, and integers that doubles do not hold."""
    specs = [TensorSpec("ids", INT, ("b", 4)), TensorSpec("mask", INT, ("b", 4))]
    feeds = {s.name: np.ones((2, 4), np.int64) for s in specs}
    large = 0
    for label, kind, made in value_changes(specs, feeds, GraphHints(), np.random.default_rng(0)):
        if label.startswith("mask"):
            assert (kind == TrialKind.EMPTY_MASK) != bool(made["mask"].any(axis=1).all())
        least = np.abs(made["ids"].astype(np.float64)).min()
        assert (kind == TrialKind.EXTREME_VALUES) is bool(least >= 2**53)
        large += bool(least >= 2**53)
    assert large > 2
