"""What is known to go wrong when PyTorch models are exported, each with a model that does it."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnxscript._internal.values import TracedOnnxFunction
from onnxscript.function_libs.torch_lib import registration

from onnxtool.conversion.convert import convert
from onnxtool.conversion.pytorch import export_errors
from onnxtool.conversion.pytorch.export import _operators_listed_once
from onnxtool.errors import InputError, UnsupportedError, UsageError, VerdictError
from onnxtool.report.convert import ConvertReport

MODELS = Path(__file__).with_name("torch_models.py")
RNG = np.random.default_rng(3)


def _models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_models", MODELS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_models"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


CLASSES = _models()


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


class Conversion:
    """A converted class of torch_models, to be run against the same class with the same seed."""

    def __init__(self, report: ConvertReport, name: str, path: Path, arguments: Mapping[str, Any]) -> None:
        self.report, self.path = report, path
        torch.manual_seed(0)  # the seed that convert builds with
        self.module = getattr(CLASSES, name)(**arguments).eval()
        self.session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    @property
    def inputs(self) -> list[str]:
        return [str(i) for i in self.report.inputs]

    @property
    def outputs(self) -> list[str]:
        return [str(o) for o in self.report.outputs]

    def run(self, **feeds: np.ndarray) -> list[np.ndarray]:
        return self.session.run(None, {n.replace("__", "."): a for n, a in feeds.items()})  # type: ignore[no-any-return]

    def torch(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self.module(*args, **kwargs)


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Conversion]:
    def run(name: str, shapes: Mapping[str, Any], arguments: Mapping[str, Any] | None = None, **settings: Any) -> Any:
        output = tmp_path / "out.onnx"
        arguments = arguments or {}
        settings = {"factory": f"{MODELS}:{name}", "factory_args": arguments, "input_shapes": shapes, **settings}
        report = convert(settings.pop("source", None), output, **settings)
        assert report.ok, report.comparison
        onnx.checker.check_model(str(output), full_check=True)
        return Conversion(report, name, output, arguments)

    return run


def t(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.copy())


def test_converts_in_evaluation_mode(converted: Callable[..., Conversion]) -> None:
    done = converted("Dropped", {"x": ("batch", 6)})
    x = floats(4, 6)
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-4, atol=1e-5)
    assert "Dropout" not in {n.op_type for n in onnx.load(done.path).graph.node}


def test_batch_is_not_frozen_at_the_size_it_was_traced_with(converted: Callable[..., Conversion]) -> None:
    done = converted("Sizes", {"x": ("batch", 2, 3)})
    for batch in (1, 2, 7):
        x = floats(batch, 2, 3)
        np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-5)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_dims_shared_by_name_and_dims_apart(converted: Callable[..., Conversion], exporter: str) -> None:
    shapes = {"left": ("batch", "n", 4), "right": ("batch", "m", 4)}
    done = converted("Pair", shapes, exporter=exporter)
    assert done.outputs == ["output: float32[batch, n, m]"]
    left, right = floats(3, 5, 4), floats(3, 8, 4)
    np.testing.assert_allclose(done.run(left=left, right=right)[0], done.torch(t(left), t(right)), rtol=1e-4, atol=1e-6)
    assert done.report.comparison is not None
    for run in done.report.comparison.runs:  # sizes that differ, so that one dim cannot pass for the other
        assert run["left"][1] != run["right"][1] != run["left"][0] == run["right"][0]


def test_unnamed_dynamic_dims_get_names(converted: Callable[..., Conversion]) -> None:
    done = converted("Pair", {"left": ("batch", None, 4), "right": ("batch", None, 4)})
    assert done.outputs == ["output: float32[batch, left_dim_1, right_dim_1]"]


def test_integers_booleans_buffers_and_a_dict(converted: Callable[..., Conversion]) -> None:
    shapes = {"input_ids": ("batch", "length"), "keep": ("batch", "length")}
    done = converted("Tokens", shapes, input_dtypes={"keep": np.dtype(bool)})
    assert done.inputs == ["input_ids: int64[batch, length]", "keep: bool[batch, length]"]
    assert [o.split(":")[0] for o in done.outputs] == ["hidden", "pooled", "count"]
    ids, keep = RNG.integers(0, 11, (2, 6)), RNG.random((2, 6)) > 0.5
    expected = done.torch(t(ids), t(keep))
    for name, got in zip(expected, done.run(input_ids=ids, keep=keep), strict=True):
        np.testing.assert_allclose(got, expected[name], rtol=1e-5, atol=1e-6)
    assert done.report.comparison is not None
    count = next(o for o in done.report.comparison.outputs if o.name == "count")
    assert count.dtype == "int64" and count.max_abs == 0


def test_optional_argument_is_fed_only_when_named(converted: Callable[..., Conversion]) -> None:
    shapes = {"input_ids": ("batch", "length"), "keep": ("batch", "length"), "bias": (4,)}
    assert [i.split(":")[0] for i in converted("Tokens", shapes).inputs] == ["input_ids", "keep", "bias"]


def test_guesses_integers_where_the_model_wants_them(converted: Callable[..., Conversion], tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_text("from torch import nn\ndef make():\n    return nn.Embedding(9, 3)\n", encoding="utf-8")
    report = convert(None, tmp_path / "x.onnx", factory=f"{net}:make", input_shapes={"": ("n",)})
    assert [str(i) for i in report.inputs] == ["input: int64[n]"]
    assert any("taken as int64" in n for n in report.notes)


def test_tuples_lists_and_dicts_are_flattened_to_stable_names(converted: Callable[..., Conversion]) -> None:
    shapes = {
        "pair.0": ("b", 3),
        "pair.1": ("b", 3),
        "named.x": ("b", 2),
        "named.y": ("b", 2),
        "many.0": ("b", 2),
        "many.1": ("b", 5),
    }
    done = converted("Structured", shapes)
    assert [i.split(":")[0] for i in done.inputs] == list(shapes)
    assert [o.split(":")[0] for o in done.outputs] == ["output_0", "output_1.0", "output_2.all", "output_2.y"]
    a, b, x, y, m, n = (floats(3, w) for w in (3, 3, 2, 2, 2, 5))
    got = done.run(pair__0=a, pair__1=b, named__x=x, named__y=y, many__0=m, many__1=n)
    for have, want in zip(got, (a + b, x * 2, np.concatenate([m, n], 1), y), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6)


def test_keyword_only_arguments_and_a_dataclass(converted: Callable[..., Conversion]) -> None:
    done = converted("Keywords", {"image": ("b", 3), "offset": ("b", 3)})
    image, offset = floats(2, 3), floats(2, 3)
    boxes, scores = done.run(image=image, offset=offset)
    np.testing.assert_allclose(boxes, image + offset, rtol=1e-6)
    np.testing.assert_allclose(scores, image.sum(-1), rtol=1e-5, atol=1e-6)
    assert [o.split(":")[0] for o in done.outputs] == ["boxes", "scores"]


def test_variadic_inputs(converted: Callable[..., Conversion]) -> None:
    done = converted("Variadic", {"p": ("b", 3), "q": ("b", 3)})
    p, q = floats(2, 3), floats(2, 3)
    np.testing.assert_allclose(done.run(p=p, q=q)[0], p + q, rtol=1e-6)


def test_named_tuple(converted: Callable[..., Conversion]) -> None:
    done = converted("Tupled", {"x": ("b", 3)})
    assert [o.split(":")[0] for o in done.outputs] == ["logits", "hidden.0", "hidden.1"]


def test_names_for_inputs_and_outputs(converted: Callable[..., Conversion]) -> None:
    done = converted("Tupled", {"image": (2, 3)}, input_names=("image",), output_names=("a", "b", "c"))
    assert done.inputs == ["image: float32[2, 3]"]
    assert [o.split(":")[0] for o in done.outputs] == ["a", "b", "c"]


@pytest.mark.parametrize(("names", "match"), [(("a", "b"), "gives 2 names; the model has 1: x"), (("a", "a"), "2")])
def test_refuses_names_that_do_not_fit(tmp_path: Path, names: tuple[str, ...], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        convert(
            None,
            tmp_path / "x.onnx",
            factory=f"{MODELS}:Tupled",
            input_shapes={"": ("b", 3)},
            input_names=names,
        )


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_in_place_operations(converted: Callable[..., Conversion], exporter: str) -> None:
    done = converted("InPlace", {"x": ("b", 3)}, exporter=exporter)
    assert not [n for n in done.report.notes if "left as the exporter wrote it" in n]
    x = floats(4, 3)
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-5)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_output_that_is_an_input_or_given_twice(converted: Callable[..., Conversion], exporter: str) -> None:
    x = floats(2, 3)
    done = converted("Alias", {"x": ("b", 3)}, exporter=exporter)
    for have, want in zip(done.run(x=x), (x, x * 2, x * 2), strict=True):
        np.testing.assert_allclose(have, want)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_tied_weights_are_stored_once(converted: Callable[..., Conversion], exporter: str) -> None:
    done = converted("Tied", {"ids": ("b", "s")}, exporter=exporter)
    weights = [i for i in onnx.load(done.path).graph.initializer if len(i.dims) == 2]
    assert [sorted(i.dims) for i in weights] == [[64, 500]]
    assert done.path.stat().st_size < 1.1 * 64 * 500 * 4
    ids = RNG.integers(0, 500, (2, 4))
    np.testing.assert_allclose(done.run(ids=ids)[0], done.torch(t(ids)), rtol=1e-4, atol=1e-5)


def test_tied_weights_of_a_state_dict(converted: Callable[..., Conversion], tmp_path: Path) -> None:
    torch.manual_seed(5)
    weights = CLASSES.Tied().state_dict()
    torch.save(weights, tmp_path / "w.pt")
    done = converted("Tied", {"ids": ("b", "s")}, source=tmp_path / "w.pt")
    assert done.path.stat().st_size < 1.1 * 64 * 500 * 4
    done.module.load_state_dict(weights)
    ids = RNG.integers(0, 500, (1, 3))
    np.testing.assert_allclose(done.run(ids=ids)[0], done.torch(t(ids)), rtol=1e-4, atol=1e-5)


def test_branch_on_the_data_is_refused_with_its_line(tmp_path: Path) -> None:
    line = next(n for n, text in enumerate(MODELS.read_text().splitlines(), 1) if "if x.sum() > 0" in text)
    with pytest.raises(UnsupportedError, match=rf"torch_models.py line {line}: if x.sum\(\) > 0:.*torch.where") as e:
        convert(None, tmp_path / "x.onnx", factory=f"{MODELS}:Branching", input_shapes={"x": ("b", 3)})
    assert e.value.exit_code == 4
    assert not (tmp_path / "x.onnx").exists()


def test_nobody_is_asked_to_rewrite_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    place = ("/env/lib/site-packages/transformers/models/x.py", " (x.py line 7: if a.any():)")
    monkeypatch.setattr(export_errors, "_place", lambda error: place)
    told = export_errors.reason(ValueError("data-dependent"))
    assert "(x.py line 7: if a.any():). It is code of transformers: convert the parts" in told
    assert "Rewrite" not in told


def test_an_error_of_torch_that_is_caught_is_refused_with_its_line(tmp_path: Path) -> None:
    """torch's tracer ends the process there."""
    line = next(n for n, text in enumerate(MODELS.read_text().splitlines(), 1) if "reshape(-1, 5, 4)" in text)
    settings = {"factory": f"{MODELS}:Trying", "input_shapes": {"x": ("b", 4)}}
    with pytest.raises(UnsupportedError, match=rf"catches an error of torch \(torch_models.py line {line}\)"):
        convert(None, tmp_path / "x.onnx", exporter="torchscript", **settings)


def test_tracing_a_branch_is_caught_or_said(tmp_path: Path) -> None:
    report = convert(
        None,
        tmp_path / "x.onnx",
        factory=f"{MODELS}:Branching",
        input_shapes={"x": ("b", 3)},
        exporter="torchscript",
    )
    assert any("one side of the branch at torch_models.py" in n for n in report.notes)
    assert not report.ok and not (tmp_path / "x.onnx").exists()
    assert report.comparison is not None and report.comparison.worst is not None
    assert report.comparison.worst.name == "output" and report.comparison.worst.mismatched > 0


def test_scripted_module_keeps_its_loop_and_branch(converted: Callable[..., Conversion], tmp_path: Path) -> None:
    path = tmp_path / "loop.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(CLASSES.Looping()).save(str(path))
    done = converted("Looping", {"x": ("b", 3)}, source=path, factory=None)
    for x in (floats(1, 3), floats(6, 3), -np.ones((2, 3), np.float32)):
        np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-5)


def test_float16_is_kept_and_judged_by_its_own_precision(converted: Callable[..., Conversion]) -> None:
    done = converted("Linear16", {"x": ("b", 16)})
    assert done.inputs == ["x: float16[b, 16]"]
    assert done.report.comparison is not None and done.report.comparison.rtol == 8 * 2**-10
    x = floats(3, 16).astype(np.float16)
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)).numpy(), rtol=1e-2, atol=1e-2)


def test_bfloat16_becomes_float32_and_says_so(converted: Callable[..., Conversion]) -> None:
    done = converted("Linear16", {"x": ("b", 16)}, {"dtype": "bfloat16"})
    assert done.inputs == ["x: float32[b, 16]"]
    assert any("bfloat16" in n for n in done.report.notes)
    x = floats(3, 16)
    done.module.float()
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-4, atol=1e-5)


def test_float16_weights_in_a_float32_model_are_said(converted: Callable[..., Conversion], tmp_path: Path) -> None:
    torch.save({k: v.half() for k, v in CLASSES.Scaled(3).state_dict().items()}, tmp_path / "w.pt")
    done = converted("Scaled", {"x": ("b", 3)}, {"width": 3}, source=tmp_path / "w.pt")
    assert "float16 weights loaded into a float32 model" in done.report.notes
    assert done.inputs == ["x: float32[b, 3]"]


def test_dims_that_must_be_multiples(converted: Callable[..., Conversion]) -> None:
    done = converted("Strided", {"x": ("b", 3, "h", "w")})
    assert any("h = 32*_h" in n for n in done.report.notes)
    x = floats(1, 3, 64, 96)
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_recurrent_length_stays_dynamic(converted: Callable[..., Conversion], exporter: str) -> None:
    done = converted("Recurrent", {"x": ("b", "s", 5)}, exporter=exporter)
    assert done.outputs[0] == "output_0: float32[b, s, 14]"
    assert not [n for n in done.report.notes if "left as the exporter wrote it" in n]
    for length in (1, 4, 33):
        x = floats(2, length, 5)
        np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x))[0], rtol=1e-3, atol=1e-5)


def test_attention(converted: Callable[..., Conversion]) -> None:
    done = converted("Attending", {"x": ("b", "s", 16)})
    x = floats(3, 11, 16)
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 13, 12, 9])
def test_attention_at_an_opset_that_only_the_older_exporter_writes(
    converted: Callable[..., Conversion], opset: int
) -> None:
    done = converted("Attending", {"x": ("b", "s", 16)}, opset=opset)
    for x in (floats(3, 11, 16), floats(1, 29, 16)):
        np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-3, atol=1e-5)


def test_attention_by_the_older_exporter_at_the_usual_opset(converted: Callable[..., Conversion]) -> None:
    done = converted("Attending", {"x": ("b", "s", 16)}, exporter="torchscript")
    x = floats(3, 11, 16)
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("opset", "mask", "grouped"),
    [(12, "", False), (9, "causal", False), (12, "bool", False), (12, "float", True), (17, "causal", True)],
)
def test_attention_function_at_old_opsets(
    converted: Callable[..., Conversion], opset: int, mask: str, grouped: bool
) -> None:
    done = converted("Weighing", {"x": ("b", "s", 16)}, {"mask": mask, "grouped": grouped}, opset=opset)
    for x in (floats(3, 11, 16), floats(1, 29, 16)):
        np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("verify_result", [True, False])
def test_weights_called_like_other_values(
    converted: Callable[..., Conversion], exporter: str, verify_result: bool
) -> None:
    done = converted("Homonyms", {"x": ("b", 4)}, exporter=exporter, verify_result=verify_result)
    assert (done.inputs, done.outputs[0].split(":")[0]) == (["x: float32[b, 4]"], "output")
    x = floats(3, 4)
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-4, atol=1e-6)


def test_a_model_that_draws_random_numbers_is_said_to(converted: Callable[..., Conversion], tmp_path: Path) -> None:
    settings = {"factory": f"{MODELS}:Gambling", "input_shapes": {"x": ("b", 4)}}
    report = convert(None, tmp_path / "out.onnx", **settings)
    assert not report.ok and any("random numbers" in n and "self.training" in n for n in report.notes)
    assert not any("random" in n for n in converted("Dropped", {"x": ("b", 6)}).report.notes)
    settings["factory"] = f"{MODELS}:GamblingBySize"
    assert not convert(None, tmp_path / "out.onnx", **settings).ok, "no comparison of sizes is to blame"
    settings["factory"] = f"{MODELS}:GamblingByData"
    with pytest.raises(UnsupportedError, match=r"^the model draws random numbers .*control flow depends on the data"):
        convert(None, tmp_path / "out.onnx", **settings)


def test_a_size_that_tracing_froze_is_explained(tmp_path: Path) -> None:
    settings = {"factory": f"{MODELS}:Counting", "input_shapes": {"x": ("b", "s", 4)}}
    with pytest.raises(VerdictError, match=r"takes a size .* for a constant: .*--input-shape, or use .*--opset 18"):
        convert(None, tmp_path / "out.onnx", opset=17, **settings)
    with pytest.raises(
        UnsupportedError, match=r"fixes the dim 's' of input 'x' to 16 \(.* line \d+: .*\)\. Give that number"
    ):
        convert(None, tmp_path / "out.onnx", exporter="dynamo", **settings)
    with pytest.raises(
        VerdictError, match=r"used because torch\.export's exporter failed: the model fixes the dim 's'"
    ):
        convert(None, tmp_path / "out.onnx", **settings)


def test_a_dtype_guessed_wrong_is_said_to_be_a_guess(tmp_path: Path) -> None:
    shapes = {"x": ("b", 4), "mask": ("b", 4)}
    with pytest.raises(InputError, match=r"boolean masks.*\. The dtypes were guessed: set them with --input-dtype \("):
        convert(None, tmp_path / "out.onnx", factory=f"{MODELS}:Masked", input_shapes=shapes)
    settings = {"factory": f"{MODELS}:Masked", "input_shapes": shapes, "input_dtypes": {"mask": "bool"}}
    assert convert(None, tmp_path / "out.onnx", **settings).ok


def test_dtypes_as_words(converted: Callable[..., Conversion]) -> None:
    done = converted("Sizes", {"x": ("b", 4)}, input_dtypes={"x": "float64"})
    assert done.inputs == ["x: float64[b, 4]"]


def test_factory_arguments(converted: Callable[..., Conversion]) -> None:
    done = converted("Scaled", {"": ("b", 5)}, {"width": 5, "factor": 0.25, "bias": False})
    x = floats(2, 5)
    np.testing.assert_allclose(done.run(x=x)[0], done.torch(t(x)), rtol=1e-4, atol=1e-6)


def test_model_that_fails_on_its_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fails on its input \(x: float32\[2, 4\]\): mat1 and mat2"):
        convert(
            None,
            tmp_path / "x.onnx",
            factory=f"{MODELS}:Scaled",
            factory_args={"width": 3},
            input_shapes={"x": ("b", 4)},
        )


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_no_local_path_stays_in_the_file(converted: Callable[..., Conversion], exporter: str) -> None:
    data = converted(
        "Attending" if exporter == "dynamo" else "Recurrent",
        {"x": ("b", "s", 16 if exporter == "dynamo" else 5)},
        exporter=exporter,
    ).path.read_bytes()
    for trace in (b"stack_trace", b".py", str(Path.cwd()).encode(), b"onnxtool_source", b"site-packages"):
        assert trace not in data.replace(b"torch_models.py:", b""), trace


def test_keeps_metadata_when_asked(converted: Callable[..., Conversion]) -> None:
    done = converted("Scaled", {"": ("b", 5)}, {"width": 5}, keep_metadata=True)
    assert b"pkg.torch.onnx" in done.path.read_bytes()


@pytest.mark.parametrize(("saved", "module"), [("float64", "float32"), ("float32", "float16")])
def test_floats_of_a_sample_are_as_the_weights(
    converted: Callable[..., Conversion], tmp_path: Path, saved: str, module: str
) -> None:
    np.savez(tmp_path / "s.npz", x=floats(2, 16).astype(saved))
    done = converted("Linear16", {}, {"dtype": module}, sample=tmp_path / "s.npz")
    assert done.inputs == [f"x: {module}[batch, 16]"]
    assert f"x: the sample's {saved} taken as {module}, as the weights; see --input-dtype" in done.report.notes


def test_sample_gives_shapes_dtypes_and_the_inputs_to_verify_on(
    converted: Callable[..., Conversion], tmp_path: Path
) -> None:
    np.savez(tmp_path / "s.npz", input_ids=RNG.integers(0, 11, (6, 4)), keep=np.ones((6, 4), bool), label=np.arange(6))
    done = converted("Tokens", {}, sample=tmp_path / "s.npz")
    assert done.inputs == ["input_ids: int64[batch, 4]", "keep: bool[batch, 4]"]
    assert done.report.comparison is not None and done.report.comparison.data == "the sample"
    assert [run["keep"] for run in done.report.comparison.runs] == [(6, 4), (1, 4), (5, 4)]


def test_a_square_matrix_of_a_sample_is_not_cut(tmp_path: Path) -> None:
    class Square(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ x

    np.savez(tmp_path / "s.npz", x=RNG.standard_normal((5, 5), np.float32))
    shapes: dict[str, tuple[int | str, ...]] = {"x": ("n", "n")}
    report = convert(Square(), tmp_path / "g.onnx", sample=tmp_path / "s.npz", input_shapes=shapes, effort="quick")
    assert report.ok and report.comparison is not None
    assert {shape for run in report.comparison.runs for shape in run.values()} == {(5, 5)}


def test_nodes_and_edges_of_a_sample_are_not_cut(tmp_path: Path) -> None:
    class Graph(torch.nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])

    x, edges = RNG.standard_normal((40, 3)).astype(np.float32), RNG.integers(0, 40, (2, 90))
    np.savez(tmp_path / "s.npz", x=x, edges=edges)
    shapes: dict[str, tuple[int | str, ...]] = {"x": ("nodes", 3), "edges": (2, "edges")}
    report = convert(Graph(), tmp_path / "g.onnx", sample=tmp_path / "s.npz", input_shapes=shapes, effort="quick")
    assert report.ok and report.comparison is not None
    assert report.comparison.runs[0] == {"x": (40, 3), "edges": (2, 90)}


@pytest.mark.parametrize("opset", [13, 17, 18, 20, 21])
def test_writes_the_opset_asked_for(converted: Callable[..., Conversion], opset: int) -> None:
    done = converted("Dropped", {"x": ("batch", 6)}, opset=opset)
    assert done.report.opset == opset
    assert {o.domain: o.version for o in onnx.load(done.path).opset_import}[""] == opset


@pytest.mark.parametrize("opset", [5, 99])
def test_refuses_an_opset_that_nobody_has(tmp_path: Path, opset: int) -> None:
    with pytest.raises(UsageError, match=f"--opset {opset}: .* have 9 to"):
        convert(None, tmp_path / "x.onnx", factory=f"{MODELS}:Dropped", input_shapes={"": ("b", 6)}, opset=opset)


def test_falls_back_to_the_other_exporter_aloud(
    converted: Callable[..., Conversion], monkeypatch: pytest.MonkeyPatch
) -> None:
    export = torch.onnx.export

    def failing(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dynamo"):
            raise RuntimeError("first exporter is out of order")
        return export(*args, **kwargs)

    monkeypatch.setattr(torch.onnx, "export", failing)
    done = converted("Dropped", {"x": ("batch", 6)})
    assert any(
        "TorchScript exporter, because torch.export's failed: RuntimeError: first" in n for n in done.report.notes
    )


def test_shows_both_errors_when_both_exporters_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("one is down" if kwargs.get("dynamo") else "two is down")

    monkeypatch.setattr(torch.onnx, "export", failing)
    with pytest.raises(UnsupportedError, match=r"one is down.*two is down"):
        convert(None, tmp_path / "x.onnx", factory=f"{MODELS}:Dropped", input_shapes={"x": ("batch", 6)})


class Cropped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = (x.shape[1] - 5) // 2
        return x[:, top : top + 5]


class RoundedUp(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, -(-x.shape[1] // 3) :].sum(1)


class Halved(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : x.shape[1] // 2].sum(1)


@pytest.mark.parametrize("kind", [Cropped, RoundedUp])
def test_sizes_below_zero_round_down(kind: type[torch.nn.Module], tmp_path: Path) -> None:
    assert convert(kind(), tmp_path / "out.onnx", input_shapes={"x": ("b", "n")}).ok
    session = ort.InferenceSession(tmp_path / "out.onnx")
    for length in (2, 3, 4, 7, 8, 9):
        x = torch.arange(2.0 * length).reshape(2, length)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert found.tolist() == kind()(x).tolist()


def test_sizes_that_are_never_below_zero_are_divided_as_before(tmp_path: Path) -> None:
    assert convert(Halved(), tmp_path / "out.onnx", input_shapes={"x": ("b", "n")}).ok
    assert "Mod" not in [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node]


class TestCustomOperators:
    """Operators of the user's own, which no exporter can know."""

    @pytest.fixture(scope="class")
    @classmethod
    def factory(cls, tmp_path_factory: pytest.TempPathFactory) -> str:
        net = tmp_path_factory.mktemp("custom") / "net.py"
        net.write_text(
            "import torch\n"
            "if not hasattr(torch.ops.onnxtool_tests, 'twice'):\n"
            "    @torch.library.custom_op('onnxtool_tests::twice', mutates_args=())\n"
            "    def twice(x: torch.Tensor, k: float) -> torch.Tensor:\n"
            "        return x * 2 * k\n"
            "    twice.register_fake(lambda x, k: torch.empty_like(x))\n"
            "class Net(torch.nn.Module):\n"
            "    def forward(self, x):\n"
            "        return torch.ops.onnxtool_tests.twice(x.relu(), 1.5) + 1\n",
            encoding="utf-8",
        )
        return f"{net}:Net"

    def test_are_named_in_the_refusal(self, factory: str, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedError, match=r"operator onnxtool_tests::twice .*--custom-op-library"):
            convert(None, tmp_path / "x.onnx", factory=factory, input_shapes={"x": ("b", 3)})

    def test_are_kept_under_their_domain(self, factory: str, tmp_path: Path) -> None:
        report = convert(
            None,
            tmp_path / "x.onnx",
            factory=factory,
            input_shapes={"x": ("b", 3)},
            custom_op_libraries=(tmp_path / "later.so",),
            verify_result=False,
        )
        assert report.ok and report.comparison is None
        model = onnx.load(tmp_path / "x.onnx")
        node = next(n for n in model.graph.node if n.domain == "onnxtool_tests")
        assert node.op_type == "twice" and [(a.name, a.f) for a in node.attribute] == [("k", 1.5)]
        assert {o.domain: o.version for o in model.opset_import}["onnxtool_tests"] == 1

    def test_need_a_library_that_is_there(self, factory: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"later\.so: no such file"):
            convert(
                None,
                tmp_path / "x.onnx",
                factory=factory,
                input_shapes={"x": ("b", 3)},
                custom_op_libraries=(tmp_path / "later.so",),
            )
        assert not (tmp_path / "x.onnx").exists()


def test_weights_are_let_go_once_they_are_on_the_disk(
    converted: Callable[..., Conversion], monkeypatch: pytest.MonkeyPatch
) -> None:
    import gc
    import weakref

    from onnxtool.conversion import convert as convert_module
    from onnxtool.conversion import export_attempts
    from onnxtool.conversion.pytorch.model import TorchModel

    weights: list[weakref.ref[Any]] = []
    alive: list[int] = []
    release, cleaned_up = TorchModel.release, export_attempts.cleaned_up

    def watched_release(model: TorchModel) -> None:
        weights.extend(weakref.ref(p) for p in model.module.parameters() if p.numel() > 1000)
        release(model)

    def watched_cleanup(*arguments: Any) -> Any:
        gc.collect()
        alive.append(sum(w() is not None for w in weights))
        return cleaned_up(*arguments)

    monkeypatch.setattr(convert_module, "SPILL", 1000)
    monkeypatch.setattr(export_attempts, "WORTHWHILE", 1000)
    monkeypatch.setattr(TorchModel, "release", watched_release)
    monkeypatch.setattr(export_attempts, "cleaned_up", watched_cleanup)
    done = converted("Tied", {"ids": ("b", "s")})
    assert len(weights) == 1 and alive == [0]
    ids = RNG.integers(0, 500, (1, 3))
    np.testing.assert_allclose(done.run(ids=ids)[0], done.torch(t(ids)), rtol=1e-4, atol=1e-5)


class Denoiser(torch.nn.Module):
    """Its output has the name of its input, as in diffusers' UNet2DModel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, sample: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sample": self.conv(sample)}


def test_an_output_with_the_name_of_an_input_gets_another(tmp_path: Path) -> None:
    module = Denoiser().eval()
    report = convert(module, tmp_path / "m.onnx", input_shapes={"sample": ("batch", 2, 5, 5)})
    assert report.ok
    assert [o.name for o in report.outputs] == ["sample_output"]
    assert any("'sample' is called 'sample_output'" in n for n in report.notes)
    given = floats(3, 2, 5, 5)
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = module(torch.from_numpy(given))["sample"]
    np.testing.assert_allclose(session.run(None, {"sample": given})[0], expected, rtol=1e-4, atol=1e-5)


class StableOrder(torch.nn.Module):
    def __init__(self, descending: bool) -> None:
        super().__init__()
        self.descending = descending

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.argsort(x, dim=1, descending=self.descending, stable=True)


@pytest.mark.parametrize("descending", [False, True])
def test_a_stable_sort_keeps_the_order_of_equal_values(descending: bool, tmp_path: Path) -> None:
    module = StableOrder(descending).eval()
    assert convert(module, tmp_path / "m.onnx", input_shapes={"x": ("batch", "n")}).ok
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for length in (1, 2, 40, 3000):
        given = RNG.integers(0, 3, (3, length)).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": given})[0], module(torch.from_numpy(given)).numpy())


def test_padded_places_of_an_encoder_are_zero_as_in_torch(tmp_path: Path) -> None:
    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.inner = torch.nn.TransformerEncoder(layer, 2, norm=torch.nn.LayerNorm(8))

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.inner(x, src_key_padding_mask=mask).mean(1)

    torch.manual_seed(0)
    encoder = Encoder().eval()
    report = convert(
        encoder, tmp_path / "out.onnx",
        input_shapes={"x": ("batch", "n", 8), "mask": ("batch", "n")}, input_dtypes={"mask": "bool"},
    )  # fmt: skip
    assert report.written, report.comparison
    session = ort.InferenceSession(tmp_path / "out.onnx")
    for mask in ([[0, 0, 1, 1, 1]], [[0, 0, 1], [0, 0, 0]], [[1, 0, 0, 1], [0, 1, 0, 0]], [[0], [0]]):
        feeds = {"x": np.random.default_rng(1).normal(size=(*np.shape(mask), 8)), "mask": np.array(mask)}
        with torch.inference_mode():
            expected = encoder(torch.tensor(feeds["x"]).float(), torch.tensor(feeds["mask"]).bool())
        found = session.run(None, {"x": feeds["x"].astype(np.float32), "mask": feeds["mask"].astype(bool)})[0]
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_attention_that_gives_its_weights_converts(tmp_path: Path) -> None:
    """For a batch without a row torch leaves the weights out: that batch is refused, and the others are compared."""
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    shapes = dict.fromkeys(("query", "key", "value"), ("batch", "n", 8))
    report = convert(attention, tmp_path / "out.onnx", input_shapes=shapes)
    assert report.ok
    assert len(report.outputs) == 2


@pytest.mark.parametrize("shape", [("batch", 4), ["batch", 4], "batch,4", ["input:batch,4"]])
def test_dims_alone_are_those_of_the_only_input(shape: Any, tmp_path: Path) -> None:
    report = convert(torch.nn.Linear(4, 2).eval(), tmp_path / "out.onnx", input_shapes=shape)
    assert report.inputs[0].shape == ("batch", 4)


def test_inputs_that_nothing_reads_stay_inputs(tmp_path: Path) -> None:
    class ReadsOne(torch.nn.Module):
        def forward(self, a: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            del a, b
            return x * 2 + 1

    shapes = {"a": ("n",), "x": ("n", 3), "b": ("n", 2)}
    for exporter in ("torchscript", "dynamo"):
        path = tmp_path / f"{exporter}.onnx"
        assert convert(ReadsOne(), path, input_shapes=shapes, exporter=exporter, effort="quick").ok
        session = ort.InferenceSession(path)
        assert [(i.name, i.shape) for i in session.get_inputs()] == [("a", ["n"]), ("x", ["n", 3]), ("b", ["n", 2])]
        feeds = {"a": np.zeros(2, np.float32), "x": np.ones((2, 3), np.float32), "b": np.zeros((2, 2), np.float32)}
        assert (session.run(None, feeds)[0] == 3).all()


def test_a_recording_of_which_hundreds_of_samples_make_a_step(tmp_path: Path) -> None:
    """The front of wav2vec 2.0 refuses fewer than 400 samples, and so all the usual lengths."""
    layers = [torch.nn.Conv1d(1, 2, 10, 5), *(torch.nn.Conv1d(2, 2, k, 2) for k in (3, 3, 3, 3, 2, 2))]
    module = torch.nn.Sequential(*layers)
    assert convert(module, tmp_path / "x.onnx", input_shapes={"": ("batch", 1, "samples")}).ok
    session = ort.InferenceSession(str(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"])
    for length in (400, 1999):
        sound = floats(3, 1, length)
        (found,) = session.run(None, {session.get_inputs()[0].name: sound})
        np.testing.assert_allclose(found, module(torch.tensor(sound)).detach(), rtol=1e-4, atol=1e-6)


def test_functions_of_the_exporter_have_the_domain_that_their_source_says() -> None:
    known = [f for _, found in registration.default_registry.items() for f in found.overloads]
    functions = [f for f in known if isinstance(f, TracedOnnxFunction)][::40]
    told = [f.function_ir.domain for f in functions]
    with _operators_listed_once():
        assert [f.function_ir.domain for f in functions] == told and told
    assert all(hasattr(f.function_ir, "inputs") for f in functions)
