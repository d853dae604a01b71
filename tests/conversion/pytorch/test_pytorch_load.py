"""Every form in which PyTorch models lie on disk: recognised by content, converted, equal to the module."""

from __future__ import annotations

import importlib.util
import pickle
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.pytorch.adapter import form_of
from onnxtool.conversion.pytorch.exported_program import is_outside
from onnxtool.conversion.pytorch.state_dict import find_weights
from onnxtool.conversion.source import Source
from onnxtool.errors import InputError, UnsafeError, UnsupportedError, UsageError
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.convert import ConvertReport

FACTORY = Path(__file__).parents[3] / "fixtures" / "digits_cnn.py"
MAKE = f"{FACTORY}:make"
SHAPES = {"image": ("batch", 1, 8, 8)}
IMAGES = np.random.default_rng(7).random((3, 1, 8, 8)).astype(np.float32)


def _classes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_cnn", FACTORY)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLASSES = _classes()


@pytest.fixture(scope="module")
def digits(fixtures: Path) -> nn.Module:
    """The trained module, built without our code."""
    model: nn.Module = CLASSES.make()
    model.load_state_dict(torch.load(fixtures / "digits_cnn.pt", weights_only=True))
    return model.eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, digits: nn.Module, fixtures: Path) -> dict[str, Path]:
    """The same model in every form."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("forms")
    weights = digits.state_dict()
    made = {name: folder / name for name in ("w.safetensors", "old.pt", "ckpt.ckpt", "wrapped.pt", "ts.pt", "p.pt2")}
    save_file(weights, made["w.safetensors"])
    torch.save(weights, made["old.pt"], _use_new_zipfile_serialization=False)
    lightning = {f"model.{k}": v for k, v in weights.items()} | {"loss.weight": torch.ones(3)}
    torch.save(
        {"pytorch-lightning_version": "2.4.0", "epoch": 3, "state_dict": lightning, "optimizer_states": []},
        made["ckpt.ckpt"],
    )
    torch.save({f"module.{k}": v for k, v in weights.items()}, made["wrapped.pt"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript warns of its age
        torch.jit.script(digits).save(str(made["ts.pt"]))
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(digits, (torch.zeros(2, 1, 8, 8),), dynamic_shapes={"image": {0: batch}})
    torch.export.save(program, made["p.pt2"])
    return made | {"state_dict": fixtures / "digits_cnn.pt"}


@pytest.fixture
def converted(tmp_path: Path, digits: nn.Module) -> Callable[..., ConvertReport]:
    """Convert, then run the file in the runtime and hold it against the module, at a batch of its own."""

    def run(source: Path | None, **settings: Any) -> ConvertReport:
        output = tmp_path / "out.onnx"
        report = convert(source, output, **settings)
        assert report.ok and report.written
        onnx.checker.check_model(str(output), full_check=True)
        session = ort.InferenceSession(str(output), providers=["CPUExecutionProvider"])
        assert [i.name for i in session.get_inputs()] == ["image"]
        assert session.get_inputs()[0].shape == ["batch", 1, 8, 8]
        assert session.get_outputs()[0].shape == ["batch", 10]
        with torch.no_grad():
            expected = digits(torch.from_numpy(IMAGES)).numpy()
        np.testing.assert_allclose(session.run(None, {"image": IMAGES})[0], expected, rtol=1e-3, atol=1e-4)
        return report

    return run


def test_state_dict_with_factory(files: dict[str, Path], converted: Callable[..., ConvertReport]) -> None:
    report = converted(files["state_dict"], factory=MAKE, input_shapes=SHAPES)
    assert report.form == "PyTorch state_dict"
    assert report.framework == f"torch {torch.__version__}"
    assert [str(o) for o in report.outputs] == ["output: float32[batch, 10]"]
    assert report.comparison is not None
    assert [run["image"][0] for run in report.comparison.runs] == [2, 1, 5]


def test_safetensors_with_factory(files: dict[str, Path], converted: Callable[..., ConvertReport]) -> None:
    assert "safetensors" in converted(files["w.safetensors"], factory=MAKE, input_shapes={"": SHAPES["image"]}).form


def test_older_form_of_torch_save(files: dict[str, Path], converted: Callable[..., ConvertReport]) -> None:
    assert files["old.pt"].read_bytes()[:2] != b"PK"
    assert converted(files["old.pt"], factory=MAKE, input_shapes=SHAPES).form == "PyTorch state_dict"


def test_lightning_checkpoint_says_what_it_stripped(
    files: dict[str, Path], converted: Callable[..., ConvertReport]
) -> None:
    report = converted(files["ckpt.ckpt"], factory=MAKE, input_shapes=SHAPES)
    assert report.form == "PyTorch Lightning checkpoint"
    assert any("prefix model. stripped from 22 names" in n for n in report.notes)
    assert any("loss.weight" in n for n in report.notes)


def test_a_checkpoint_of_several_weights_says_which_it_takes() -> None:
    weights, other = {"w": torch.zeros(1)}, {"w": torch.ones(1)}
    notes: list[str] = []
    assert find_weights({"ema": other, "epoch": 3, "model": weights}, "x.pt", notes) == weights
    assert find_weights({"generator": other, "epoch": 3}, "x.pt", notes) == other
    assert notes == [
        "weights taken from the entry 'model' of a checkpoint, not 'ema'",
        "weights taken from the entry 'generator' of a checkpoint",
    ]
    with pytest.raises(InputError, match=r"x.pt: .* several sets of weights \(generator, critic\)\. Save the one"):
        find_weights({"generator": other, "critic": weights}, "x.pt", notes)


def test_a_module_that_is_a_file_here_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mynet.py").write_text("def make(): ...\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no module 'mynet'\. For the file here write --factory mynet\.py:make"):
        convert(None, tmp_path / "x.onnx", factory="mynet:make", adapter="pytorch")


def test_prefix_of_a_parallel_wrapper(files: dict[str, Path], converted: Callable[..., ConvertReport]) -> None:
    report = converted(files["wrapped.pt"], factory=MAKE, input_shapes=SHAPES)
    assert "prefix module. stripped from 22 names" in report.notes


def test_torchscript_archive_needs_no_factory(files: dict[str, Path], converted: Callable[..., ConvertReport]) -> None:
    report = converted(files["ts.pt"], input_shapes=SHAPES)
    assert report.form == "TorchScript archive"
    assert report.opset == 20  # where the TorchScript exporter ends


def test_exported_program_brings_its_own_shapes(
    files: dict[str, Path], converted: Callable[..., ConvertReport]
) -> None:
    assert converted(files["p.pt2"]).form == "PyTorch exported program (.pt2)"


def test_refuses_to_unfreeze_a_dim_of_an_exported_program(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fixed dim 8"):
        convert(files["p.pt2"], tmp_path / "x.onnx", input_shapes={"image": ("batch", 1, "h", 8)})


def test_factory_alone_is_the_same_in_every_run(tmp_path: Path) -> None:
    a, b = (tmp_path / n for n in ("a.onnx", "b.onnx"))
    for output in (a, b):
        report = convert(None, output, factory=MAKE, input_shapes=SHAPES, reproducible=True)
    assert a.read_bytes() == b.read_bytes()
    assert report.source == "the factory" and report.source_sha256 == ""
    assert any("no weights" in n for n in report.notes)


@pytest.fixture(scope="module")
def pickled(tmp_path_factory: pytest.TempPathFactory, digits: nn.Module) -> Path:
    """The module pickled in training mode, as a careless script leaves it."""
    path = tmp_path_factory.mktemp("pickled") / "module.pt"
    digits.train()
    with pytest.MonkeyPatch.context() as patch:  # pickle wants to find the class where it says it is
        patch.setitem(sys.modules, "digits_cnn", CLASSES)
        torch.save(digits, path)
    digits.eval()
    return path


class TestPickledModule:
    """A whole module, pickled: code."""

    def test_is_refused_without_trust(self, pickled: Path, tmp_path: Path) -> None:
        with pytest.raises(UnsafeError, match=r"pickled module \(digits_cnn\.DigitsCNN\), which can run code.*--trust"):
            convert(pickled, tmp_path / "x.onnx", input_shapes=SHAPES)
        assert not (tmp_path / "x.onnx").exists()

    def test_is_converted_in_evaluation_mode(self, pickled: Path, converted: Callable[..., ConvertReport]) -> None:
        report = converted(pickled, trust=True, input_shapes=SHAPES, python_path=(FACTORY.parent,))
        assert report.form == "pickled PyTorch module"
        assert any("training mode" in n for n in report.notes)

    def test_takes_classes_of_a_script_from_the_factory(
        self, tmp_path: Path, converted: Callable[..., ConvertReport], pickled: Path
    ) -> None:
        # Saved from a script, the class is called __main__.DigitsCNN.
        script = tmp_path / "script.pt"
        with zipfile.ZipFile(pickled) as old, zipfile.ZipFile(script, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(b"cdigits_cnn\n", b"c__main__\n"))
        converted(script, trust=True, factory=MAKE, input_shapes=SHAPES)

    def test_says_where_its_code_may_be(self, pickled: Path, tmp_path: Path) -> None:
        lost = tmp_path / "lost.pt"
        with zipfile.ZipFile(pickled) as old, zipfile.ZipFile(lost, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(b"cdigits_cnn\n", b"cnowhere_at_all\n"))
        with pytest.raises(InputError, match=r"nowhere_at_all.*--pythonpath"):
            convert(lost, tmp_path / "x.onnx", trust=True, input_shapes=SHAPES)

    def test_malicious_pickle_does_not_run(self, tmp_path: Path) -> None:
        trap = tmp_path / "trap"

        class Evil:
            def __reduce__(self) -> Any:
                return Path.touch, (trap,)

        path = tmp_path / "evil.pt"
        torch.save({"state_dict": Evil()}, path)
        with pytest.raises(UnsafeError, match="pickled Python objects"):
            convert(path, tmp_path / "x.onnx", factory=MAKE, input_shapes=SHAPES)
        assert not trap.exists()


class TestExportedProgramScreening:
    """torch.export.load can run code that a .pt2 file brings; such a file is refused."""

    def altered(self, source: Path, target: Path, entry: str, old: bytes, new: bytes) -> Path:
        with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as changed:
            seen = False
            for name in archive.namelist():
                data = archive.read(name)
                if name.endswith(entry):
                    assert old in data
                    data, seen = data.replace(old, new, 1), True
                changed.writestr(name, data)
        assert seen
        return target

    @pytest.mark.parametrize(
        ("entry", "old", "new"),
        [
            ("weights_config.json", b'"use_pickle": false', b'"use_pickle": true'),
            ("weights_config.json", b'"weight_0"', b'"opaque_obj_0"'),
            ("model.json", b"torch.ops.aten.relu.default", b"torch.os.system"),
            ("model.json", b"torch.ops.aten.relu.default", b"torch.ops.load_library.x"),
            ("model.json", b"Symbol('s", b"__import__('os').system('true'), Symbol('s"),
            ("model.json", b"Symbol('s", b"open('s"),
        ],
    )
    def test_refuses_what_could_run(
        self, files: dict[str, Path], tmp_path: Path, entry: str, old: bytes, new: bytes
    ) -> None:
        path = self.altered(files["p.pt2"], tmp_path / "bad.pt2", entry, old, new)
        with pytest.raises(UnsafeError, match="--trust"):
            convert(path, tmp_path / "x.onnx")

    def test_refuses_a_pickle_among_its_parts(self, files: dict[str, Path], tmp_path: Path) -> None:
        path = tmp_path / "bad.pt2"
        with zipfile.ZipFile(files["p.pt2"]) as archive, zipfile.ZipFile(path, "w") as changed:
            for name in archive.namelist():
                inputs = name.endswith("sample_inputs/model.pt")
                changed.writestr(name, pickle.dumps(Path("/")) if inputs else archive.read(name))
        with pytest.raises(UnsafeError, match="--trust"):
            convert(path, tmp_path / "x.onnx")

    def test_refuses_a_program_exported_in_training_mode(self, tmp_path: Path) -> None:
        class Net(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return nn.functional.dropout(x, 0.5, self.training)

        path = tmp_path / "train.pt2"
        torch.export.save(torch.export.export(Net().train(), (torch.zeros(2, 3),)), path)
        with pytest.raises(UnsupportedError, match="training mode"):
            convert(path, tmp_path / "x.onnx")


class TestBadInput:
    """One clear line each, and nothing written."""

    def refused(self, kind: type[Exception], match: str, source: Path | None, folder: Path, **settings: Any) -> None:
        output = folder / "never.onnx"
        with pytest.raises(kind, match=match) as caught:
            convert(source, output, **settings)
        assert "\n" not in str(caught.value)
        assert not output.exists()

    def test_missing(self, tmp_path: Path) -> None:
        self.refused(InputError, "no such file", tmp_path / "a.pt", tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "a.pt").touch()
        self.refused(InputError, "empty", tmp_path / "a.pt", tmp_path)

    def test_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.pt").write_text("hello\n" * 20, encoding="utf-8")
        self.refused(InputError, "text file", tmp_path / "a.pt", tmp_path)

    @pytest.mark.parametrize("name", ["state_dict", "w.safetensors", "old.pt", "ts.pt", "p.pt2"])
    @pytest.mark.parametrize("share", [0.01, 0.6])
    def test_cut_off(self, files: dict[str, Path], tmp_path: Path, name: str, share: float) -> None:
        data = files[name].read_bytes()
        path = tmp_path / "cut.pt"
        path.write_bytes(data[: int(len(data) * share)])
        self.refused(InputError, "damaged|cut off", path, tmp_path, factory=MAKE, input_shapes=SHAPES)

    def test_onnx_already(self, digits_onnx: Path, tmp_path: Path) -> None:
        self.refused(InputError, "ONNX file already", digits_onnx, tmp_path)

    def test_weights_without_factory(self, files: dict[str, Path], tmp_path: Path) -> None:
        self.refused(UsageError, "state_dict.*--factory", files["state_dict"], tmp_path, input_shapes=SHAPES)

    def test_weights_in_a_hugging_face_folder(self, files: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "m").mkdir()
        weights = tmp_path / "m" / "model.safetensors"
        weights.write_bytes(files["w.safetensors"].read_bytes())
        (tmp_path / "m" / "config.json").write_text("{}", encoding="utf-8")
        self.refused(UsageError, "Convert the folder .*m as a whole", weights, tmp_path)

    @pytest.mark.parametrize(
        ("factory", "match"),
        [
            ("digits_cnn.py", "write file.py:function"),
            ("nowhere.py:make", "no such file nowhere.py"),
            (f"{FACTORY}:mkae", "has no 'mkae'; it has .*make"),
            ("no_such_module_here:make", "no module 'no_such_module_here'. Install it, or add its folder"),
            (f"{FACTORY}:nn", "is not a function"),
            ("math:sqrt", "argument"),
            ("builtins:dict", "gave a dict; it must give a torch.nn.Module"),
        ],
    )
    def test_wrong_factory(self, files: dict[str, Path], tmp_path: Path, factory: str, match: str) -> None:
        arguments = {"x": 1} if factory.endswith(":nn") else {}
        self.refused(
            UsageError,
            match,
            files["state_dict"],
            tmp_path,
            factory=factory,
            factory_args=arguments,
            input_shapes=SHAPES,
        )

    def test_factory_that_fails(self, files: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "net.py").write_text("def make():\n    raise ValueError('no licence')\n", encoding="utf-8")
        factory = f"{tmp_path / 'net.py'}:make"
        self.refused(InputError, "ValueError: no licence", files["state_dict"], tmp_path, factory=factory)

    def test_weights_of_another_model(self, files: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "net.py").write_text("from torch import nn\nmake = lambda: nn.Linear(3, 2)\n", encoding="utf-8")
        factory = f"{tmp_path / 'net.py'}:make"
        match = r"2 missing \(weight, bias\), 22 not in the model \(features.*\+19 more\)"
        self.refused(InputError, match, files["state_dict"], tmp_path, factory=factory)

    def test_weights_of_another_width(self, files: dict[str, Path], tmp_path: Path) -> None:
        match = r"head.4.weight: \[10, 64\] in the file, \[7, 64\] in the model.*--factory-arg"
        factory = f"{FACTORY}:DigitsCNN"
        self.refused(InputError, match, files["state_dict"], tmp_path, factory=factory, factory_args={"classes": 7})

    @pytest.mark.parametrize(
        ("shapes", "kind", "match"),
        [
            ({}, UsageError, "shape of input 'image' is not known.*--input-shape image:"),
            ({"picture": (1, 1, 8, 8)}, UsageError, "no input 'picture'; the model has image"),
            ({"image": ("batch", 3, 8, 8)}, InputError, r"fails on its input \(image: float32\[2, 3, 8, 8\]\)"),
        ],
    )
    def test_wrong_shapes(
        self, files: dict[str, Path], tmp_path: Path, shapes: Any, kind: type[Exception], match: str
    ) -> None:
        self.refused(kind, match, files["state_dict"], tmp_path, factory=MAKE, input_shapes=shapes)

    def test_neither_source_nor_factory(self, tmp_path: Path) -> None:
        self.refused(UsageError, "SOURCE file, or --factory", None, tmp_path)

    def test_output_is_a_folder(self, files: dict[str, Path], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is a folder"):
            convert(files["state_dict"], tmp_path, factory=MAKE, input_shapes=SHAPES)

    def test_unknown_setting(self, files: dict[str, Path], tmp_path: Path) -> None:
        self.refused(UsageError, "no option 'factroy'", files["state_dict"], tmp_path, factroy=MAKE)


def test_recognises_by_content_not_by_suffix(files: dict[str, Path], tmp_path: Path) -> None:
    expected = {
        "state_dict": "archive",
        "w.safetensors": "safetensors",
        "old.pt": "legacy",
        "ts.pt": "torchscript",
        "p.pt2": "exported program",
    }
    for name, form in expected.items():
        plain = tmp_path / "model.bin"
        plain.write_bytes(files[name].read_bytes())
        assert form_of(Source(plain), ConvertOptions()) == form


@pytest.mark.parametrize("name", ["digits_keras.keras", "digits_forest.skops", "digits_forest.joblib", "eval.npz"])
def test_leaves_other_frameworks_files_alone(fixtures: Path, name: str) -> None:
    assert form_of(Source(fixtures / name), ConvertOptions()) is None


def test_open_source_is_a_runner(files: dict[str, Path], digits: nn.Module) -> None:
    model = open_source(files["state_dict"], factory=MAKE, input_shapes=SHAPES, output_names=("logits",))
    result = model.run({"image": IMAGES})
    with torch.no_grad():
        np.testing.assert_array_equal(result["logits"], digits(torch.from_numpy(IMAGES)).numpy())


class _Picky(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != 16000:
            raise ValueError("wants 16000 samples")
        return x * 2


class Saves(torch.nn.Module):
    """Writes a file when it is run, as TorchScript too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, "written-by-a-model")
        return x * 2


def test_torchscript_that_writes_files_is_refused_without_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch deprecates its own scripting
        torch.jit.script(Saves()).save("model.pt")
    with pytest.raises(UnsafeError, match=r"reaches outside of it \(save\).*--trust"):
        convert("model.pt", "out.onnx", input_shapes={"x": (2,)})
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt"]

    with zipfile.ZipFile("model.pt") as archive, zipfile.ZipFile("upper.pt", "w") as other:
        for name in archive.namelist():
            other.writestr(name.replace(".py", ".PY") if name.endswith(".py") else name, archive.read(name))
    with pytest.raises(UnsafeError, match=r"\(save\)"):
        convert("upper.pt", "out.onnx", input_shapes={"x": (2,)})


@pytest.mark.parametrize(
    ("target", "outside"),
    [
        ("torch.ops.aten.from_file.default", True),
        ("torch.ops.image.read_file", True),
        ("torch.ops.symm_mem.one_shot_all_reduce.default", True),
        ("torch.ops.aten.add.Tensor", False),
    ],
)
def test_which_operators_of_exported_programs_reach_outside(target: str, outside: bool) -> None:
    assert is_outside(target) is outside


def test_torchscript_says_what_it_wants(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(_Picky()).save(str(tmp_path / "picky.pt"))
    with pytest.raises(InputError, match=r"fails on its input .*wants 16000 samples"):
        convert(tmp_path / "picky.pt", tmp_path / "out.onnx", input_shapes={"x": ("batch", 8)})


def test_takes_modules_in_memory_whose_weights_are_computed_before_they_run(tmp_path: Path) -> None:
    """By pruning, or by the older weight_norm of vocoders."""
    layer = nn.Linear(4, 3)
    prune.l1_unstructured(layer, "weight", 0.5)
    assert not layer.weight.is_leaf

    report = convert(layer, tmp_path / "out.onnx", input_shapes=("batch", 4), effort="quick")

    assert report.ok


class Fails(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("what is wrong")


def test_of_sizes_that_fail_the_first_is_told(tmp_path: Path) -> None:
    """The last ones, of which one is a recording's, are too large for three dims."""
    with pytest.raises(InputError, match="what is wrong"):
        convert(Fails(), tmp_path / "out.onnx", input_shapes={"x": ("batch", "a", "b", "c")})
