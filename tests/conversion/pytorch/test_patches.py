"""Every correction of PyTorch's exporters is needed by the version that is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph, NotImplemented
from torch import _decomp, nn
from torch.nn import functional

import onnxtool
from onnxtool.conversion.patches import Patch, correct
from onnxtool.conversion.pytorch.patches import (
    constant_steps,
    distributions,
    exact_patterns,
    floor_division,
    fourier,
    growing_tables,
    narrow_steps,
    open_bounds,
    padded_encoder,
    projected_lstm,
    recurrent_shapes,
    removed_inputs,
    sizes,
    traced_operators,
    translations,
    whole_steps,
)
from tests.conversion.patched import hold_needed, patches_of

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
NOISE = torch.from_numpy(np.random.default_rng(1).standard_normal((1, 1200)).astype(np.float32))
SEQUENCE = np.random.default_rng(0).standard_normal((3, 5, 8)).astype(np.float32)


class Computes(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def adds_to_the_first(x: torch.Tensor) -> torch.Tensor:
    h = x[0]
    for i in range(1, x.shape[0]):
        h = 0.5 * h + x[i]
    return h


def splits_heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (2, 4)).transpose(1, 2).flatten(2)


class ProjectsItsState(nn.Module):
    """Two layers both ways, from a state that is given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True, proj_size=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_ones(4, x.shape[0], 3), x.new_ones(4, x.shape[0], 6)
        output, (h, c) = self.lstm(x, state)
        return torch.cat([output.mean(1), h.sum(0), c.sum(0)], -1)


def shares_keys(x: torch.Tensor) -> torch.Tensor:
    heads = x.unsqueeze(1)
    return functional.scaled_dot_product_attention(heads.repeat(1, 4, 1, 1), heads, heads, enable_gqa=True)


def attends_to_nothing(x: torch.Tensor) -> torch.Tensor:
    """Rows of which a mask leaves nothing, said in booleans and in -inf."""
    heads, keeps = x[:, None, :, None], x[:, None, :, None] > 0
    attention = functional.scaled_dot_product_attention
    said = [keeps.expand(-1, 1, -1, x.shape[1]), torch.where(keeps, 0.0, -torch.inf).expand(-1, 1, -1, x.shape[1])]
    return torch.cat([attention(heads, heads, heads + 1, mask)[:, 0, :, 0] for mask in said], 1)


def large_number(x: torch.Tensor) -> torch.Tensor:
    return (x * 0 + 2**24).long() + 1


def waves(x: torch.Tensor) -> torch.Tensor:
    return (torch.sin(torch.arange(1030) * (x[:, :1] * 0 + 0.7)) + torch.cos(torch.arange(1030) * 3.1)) / 500


def wave_spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(waves(x)).real


def pools_of_five(x: torch.Tensor) -> torch.Tensor:
    return functional.avg_pool2d(x[:, None, None], (1, 2), padding=(0, 1), divisor_override=5)


def frames(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(NOISE + x[:, :1], 400, 200, window=torch.hann_window(400), return_complex=True).abs()


def writes_complex(x: torch.Tensor) -> torch.Tensor:
    """As Fourier neural operators do: few frequencies of a spectrum are kept."""
    kept = torch.zeros(x.shape[0], 4, dtype=torch.complex64)
    kept[:, :2] = torch.fft.rfft(x)[:, :2]
    return torch.fft.irfft(kept, 6)


def turns_by_weights(x: torch.Tensor) -> torch.Tensor:
    """An orthogonal matrix, a determinant and complex numbers, all made of constants."""
    weights = torch.arange(36.0).reshape(6, 6) / 36
    values, vectors = torch.linalg.eigh(weights + weights.T)
    poles = torch.exp(torch.complex(values, values * 2)) * torch.linalg.slogdet(weights + torch.eye(6)).logabsdet
    return x @ torch.linalg.matrix_exp(weights - weights.T) @ vectors.abs() + poles.real


def needs_pivots(x: torch.Tensor) -> torch.Tensor:
    """Matrices [..., 6, 6] with small numbers on the diagonal, of which elimination in their order loses all digits."""
    return x[..., :, None] * x[..., None, :] * 1e-4 + torch.eye(6).roll(2, 0) * 3


def solves_matrices_and_vectors(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(needs_pivots(x), x) + torch.linalg.solve(needs_pivots(x[0]), x.mT).mT


def solves_triangles(x: torch.Tensor) -> torch.Tensor:
    """The other triangle does not count."""
    full, solve = x[:, :, None] * x[:, None] + 2 * torch.eye(6), torch.linalg.solve_triangular
    return torch.cat([solve(full, x[:, :, None], upper=upper) for upper in (False, True)], 1)


def rounds_down(x: torch.Tensor) -> torch.Tensor:
    return x * 0 + (x.shape[0] - 7) // 2


def masked_and_bounded(x: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(x < 0, -torch.inf).clamp(max=0.5)


def agrees(
    module: Any,
    rows: np.ndarray,
    folder: Path,
    exporter: str,
    rtol: float = 1e-5,
    dims: Any = ("batch", 6),
    opset: int | None = None,
) -> bool:
    """Whether the file gives what the module does."""
    onnxtool.convert(
        module.eval(),
        folder / "out.onnx",
        input_shapes={"x": dims},
        exporter=exporter,
        verify_result=False,
        opset=opset,
    )
    try:
        session = onnxruntime.InferenceSession(folder / "out.onnx")
        (found,) = session.run(None, {session.get_inputs()[0].name: rows})
    except (Fail, InvalidArgument, InvalidGraph, NotImplemented):
        return False
    expected = module(torch.from_numpy(rows)).detach().numpy()
    return found.shape == expected.shape and np.allclose(
        found, expected, rtol=rtol, atol=1e-30 if rtol < 1e-5 else 1e-5
    )


def translated(index: int, function: Callable[[Any], Any], rows: np.ndarray = X, rtol: float = 1e-5) -> tuple[Any, Any]:
    return translations.PATCHES[index], lambda folder: agrees(Computes(function), rows, folder, "dynamo", rtol)


def traced(module: Any, rows: np.ndarray, *, fixed: bool = False, opset: int | None = None) -> Callable[[Path], bool]:
    dims = rows.shape if fixed else ("batch", *(("length",) if rows.ndim == 3 else ()), rows.shape[-1])
    return lambda folder: agrees(module, rows, folder, "torchscript", dims=dims, opset=opset)


def says_that_equal_was_frozen(folder: Path) -> bool:
    module = Computes(lambda x: x + 1 if torch.equal(x, x * 2) else x - 1)
    shapes = {"x": ("batch", 6)}
    report = onnxtool.convert(
        module, folder / "out.onnx", input_shapes=shapes, exporter="torchscript", verify_result=False
    )
    return any("tracing kept one side" in note for note in report.notes)


def forgets_a_removed_input(_: Path) -> bool:
    graph = ir.Graph([ir.Value(name=name) for name in "ab"], [], nodes=[])
    graph.inputs.pop()
    correct((removed_inputs.PATCH,), graph)
    return list(graph.inputs._ref_counter.values()) == [1]


def attends_when_traced(folder: Path) -> bool:
    cases = ((shares_keys, SEQUENCE), (attends_to_nothing, X))
    return all(traced(Computes(function), rows)(folder) for function, rows in cases)


class LeavesPaddingOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
        self.eval().requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1])[None].expand(x.shape[0], -1)
        return self.inner(x, src_key_padding_mask=places > 0)  # type: ignore[no-any-return]


class MasksWhatFollows(nn.Module):
    """With a mask that follows from the length, as decoders are called."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)
        self.eval().requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.inner(x, x[:, :2], tgt_mask=mask)  # type: ignore[no-any-return]


class GrowingPositions(nn.Module):
    """A table of four positions, made as transformers makes M2M100's, for a sequence of five."""

    embedding_dim = 8

    def __init__(self) -> None:
        super().__init__()
        self.make_weights(4, 8)

    def make_weights(self, count: int, width: int, padding: int | None = None) -> None:
        self.weights = nn.Buffer(self.get_embedding(count, width, padding), persistent=False)

    @staticmethod
    def get_embedding(count: int, width: int, padding: int | None = None) -> torch.Tensor:
        return torch.sin(torch.arange(count).float()[:, None] * torch.exp(-torch.arange(width).float()) * 400)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self.weights.size(0):
            self.make_weights(x.shape[1], 8)
        return x + self.weights[: x.shape[1]]


class GrowingDistances(nn.Module):
    """Likewise of distances, as Conformers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = GrowingPositions()
        self.pe = nn.Buffer(self.extend_pe(torch.zeros(1, 4)), persistent=False)

    def extend_pe(self, x: torch.Tensor, pe: torch.Tensor | None = None) -> torch.Tensor:
        if pe is not None and pe.size(1) >= x.size(1) * 2 - 1:
            return pe
        places = torch.arange(1 - x.shape[1], x.shape[1])[:, None].float()
        return torch.cos(places * torch.exp(-torch.arange(8).float()) * 400)[None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.pe = self.extend_pe(x, self.pe)
        middle = self.pe.size(1) // 2
        beside = self.pe[:, middle - x.shape[1] + 1 : middle + x.shape[1]]
        return self.positions(x) + beside.mean(1, keepdim=True)  # type: ignore[no-any-return]


class PadsToWholeSteps(nn.Module):
    """A convolution with stride 3, as EnCodec has it, of five places and of ones fewer than it mirrors."""

    def __init__(self) -> None:
        super().__init__()
        for name, number in {"kernel_size": 7, "stride": 3, "padding_total": 4}.items():
            self.register_buffer(name, torch.tensor(number), persistent=False)

    def _get_extra_padding_for_conv1d(self, values: torch.Tensor) -> torch.Tensor:
        length = values.shape[-1] - self.kernel_size + self.padding_total
        return torch.ceil(length / self.stride).to(torch.int64) * self.stride - length

    @staticmethod
    def _pad1d(values: torch.Tensor, paddings: Any, mode: str) -> torch.Tensor:
        more = max(*paddings) - values.shape[-1] + 1
        if more <= 0:
            return functional.pad(values, paddings, mode)
        return functional.pad(functional.pad(values, (0, more)), paddings, mode)[..., :-more]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = self._pad1d(x.mT, (self.padding_total, self._get_extra_padding_for_conv1d(x.mT)), "reflect")
        return functional.avg_pool1d(padded, 7, 3)


def pads_to_whole_steps(folder: Path) -> bool:
    rows = np.random.default_rng(0).standard_normal((3, 12, 8)).astype(np.float32)
    dims = ("batch", "length", 8)
    return all(agrees(PadsToWholeSteps(), rows[:, :n], folder, "dynamo", dims=dims) for n in (3, 12))


class Recurs(nn.Module):
    """A GRU, and an LSTM both ways from a state that is given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gru, self.lstm = nn.GRU(8, 6, batch_first=True), nn.LSTM(6, 5, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x[:, 0, :5].tanh().expand(2, -1, -1)
        outputs, (hidden, cell) = self.lstm(self.gru(x)[0], (state, state * 2))
        return torch.cat([outputs, (hidden + cell).sum(0)[:, None].expand(-1, x.shape[1], -1)], -1)


def exports_without_steps(folder: Path) -> bool:
    def followed(*given: Any, **more: Any) -> Any:
        raise AssertionError("a step is followed, and with it thousands")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("one_layer_rnn", "one_layer_lstm"):
            assert hasattr(_decomp.decompositions, name)
            patch.setattr(_decomp.decompositions, name, followed)
        return agrees(Recurs(), SEQUENCE, folder, "dynamo", dims=("batch", "length", 8))


def pools_places(name: str) -> Callable[[Path], bool]:
    """Of a length that is not known to windows that are not alike."""
    pool, dims = getattr(nn.functional, name), int(name[-2])

    def pooled(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = pool(x[(slice(None), *[None] * (dims - 1))], (1, 3, 5)[3 - dims :])
        return found

    return lambda folder: agrees(Computes(pooled), SEQUENCE, folder, "dynamo", dims=("batch", "length", 8))


def swaps_halves(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.fftshift(x, (1, 2)) + x.roll((-x.shape[1] // 2, 1), (1, 2)) + torch.roll(x, 3 * x.shape[1] + 2, -2)


def log_density(x: torch.Tensor) -> torch.Tensor:
    parts = torch.distributions.Categorical(logits=x[:, :2])
    density: torch.Tensor = torch.distributions.MixtureSameFamily(
        parts, torch.distributions.Normal(x[:, 2:4], x[:, 4:].exp())
    ).log_prob(x[:, 0])
    return density


def divides_by_nearly_nothing(x: torch.Tensor) -> torch.Tensor:
    """By 1e-8 where a row is zero; and what is left of a factor of nearly one."""
    return x / (x.norm(dim=-1, keepdim=True) + 1e-8) + (x * 1.000008 - x) * 1e6


def counts_rows(x: torch.Tensor) -> torch.Tensor:
    """Of two rows with which it is followed, and of four."""
    numbers = min(x.shape[0], 3) + 10 * max(3, x.shape[0]) + max(len([1, 2]), x.dim())
    numbers = numbers + torch.take_along_dim(x, x.argmax(1, keepdim=True), 1) + x.take_along_dim(x[:1].argsort(), -1)
    return x * len(x) + numbers + sum(x[i : i + x.shape[0]].sum() for i in range(0, x.shape[0], x.shape[0]))


def counts_fraction(x: torch.Tensor) -> torch.Tensor:
    """Of 50 rows 114, where float32 has 115."""
    return x.new_ones(int(x.shape[0] * 2.3)).sum()


def nearest(x: torch.Tensor, dims: int) -> torch.Tensor:
    """Of 129 pixels 9, every third of which lies on a pixel."""
    image = x.repeat(1, 22)[:, :129].unflatten(1, (1, 129, *[1] * (dims - 1)))
    return functional.interpolate(image, (9, *[1] * (dims - 1)), mode="nearest").flatten(1)


def infinite_places(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x / 0, x * 0], -1)[:, None]


ENCODER = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
GAMMAS = np.array([[0.0, 0.001, 0.4, 0.5, 1.0, 1.4616], [2.0, 5.5, 300.0, -0.3, -2.5, -7.01]], np.float32)
SHARES = np.array([[-1.0, -0.999, -0.9, -0.3, -1e-6, 0.0], [1e-3, 0.5, 0.99, 0.99999, 1.0, 0.7]], np.float32)
SMALL = np.array([[1e-7, -1e-7, 3e-5, 0.5, 2.0, -0.3]], np.float32)


def rounds_each_step(x: torch.Tensor) -> torch.Tensor:
    """Rounded once, it would differ by one in some hundred."""
    slopes = torch.tensor([0.5, 0.3, 0.7, 0.1, 0.9, 1.3]).bfloat16()
    return (slopes * x.bfloat16() + slopes[0] / 3)[:, None].reshape(-1, 6).float() + x


ZEROS = np.array([[-0.0, 0.0, -2.0, -0.0, -0.0, 1.5]] * 2, np.float32)
CLOSE = np.array([[1000.0, 1000.001, 1000.002, 7.0, 7.5, 9.0]] * 2, np.float32)
CASES: dict[Patch[..., object], Callable[[Path], bool]] = dict(
    [
        translated(0, lambda x: x.sort(dim=1, stable=True).values),
        translated(1, lambda x: x + x.median()),
        translated(2, lambda x: x.median(1).values),
        translated(3, lambda x: x.cumprod(1)),
        translated(4, lambda x: x.kthvalue(2, 1).values),
        translated(5, lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x)),
        translated(6, lambda x: torch.fmax(x / x.abs(), x.flip(1)), ZEROS),
        translated(7, lambda x: torch.fmin(x / x.abs(), x.flip(1)), ZEROS),
        translated(8, lambda x: torch.hypot(x, x.flip(1)) + torch.hypot(x * 1e20, x), ZEROS),
        translated(9, lambda x: torch.copysign(x + 1, x), ZEROS),
        translated(10, lambda x: torch.cdist(x[:, :, None], x[:, :, None]), CLOSE, 1e-3),
        translated(11, functional.logsigmoid, np.array([[-20.0, -100.0, -5.0, 0.0, 3.0, 9.0]], np.float32)),
        translated(12, lambda x: torch.atan2(x, x.flip(1)), ZEROS),
        translated(13, lambda x: torch.signbit(x) * 1.0, ZEROS),
        translated(14, torch.expm1, SMALL, 1e-6),
        translated(15, torch.log1p, SMALL, 1e-6),
        translated(16, attends_to_nothing),
        translated(17, lambda x: x.cummax(1).values),
        translated(18, lambda x: x.cummin(1).values),
        translated(19, lambda x: (x * 0).index_reduce(1, torch.tensor([0, 0, 1]), x[:, :3], "amax")),
        translated(20, lambda x: x.logcumsumexp(1), np.array([[-90, 80, 80, -3, 0, 0]], np.float32)),
        translated(21, lambda x: x.scatter_reduce(1, torch.zeros_like(x, dtype=torch.int64), x, "mean")),
        translated(22, lambda x: torch.div(large_number(x), large_number(x) * 0 + 1, rounding_mode="floor") - 2**24),
        translated(23, lambda x: x.index_put((torch.tensor([0], dtype=torch.int32),), x[0] + 1)),
        translated(24, lambda x: torch.ops.aten._unsafe_index_put(x, [torch.tensor([0], dtype=torch.int32)], x[0] + 1)),
        translated(25, wave_spectrum),
        translated(26, lambda x: torch.fft.fft(torch.complex(waves(x), waves(x).flip(1))).real),
        translated(27, lambda x: torch.fft.irfft(torch.complex(waves(x), waves(x).flip(1)) * 2e5, 2058)),
        translated(28, lambda x: torch.einsum("bi,bj->bij", torch.complex(x, x + 1), torch.complex(x, x)).imag),
        translated(29, lambda x: torch.bmm(torch.complex(x, x + 1)[..., None], torch.complex(x, x)[:, None]).imag),
        translated(30, writes_complex),
        translated(31, writes_complex),
        translated(32, writes_complex),
        translated(33, lambda x: torch.complex(x, x + 1).unsqueeze(-1).imag),
        translated(34, lambda x: torch.complex(x, x + 1)[:, :1].expand(-1, 5).imag),
        translated(35, lambda x: torch.complex(x, x + 1).select(-1, 2).imag),
        translated(36, lambda x: functional.group_norm(x[:, :, None] * 0.1 + 100, 2) + 5, rtol=1e-3),
        translated(37, lambda x: torch.linalg.inv(needs_pivots(x))),
        translated(38, solves_matrices_and_vectors),
        translated(39, solves_triangles),
        translated(41, lambda x: x * torch.hamming_window(6) + x * torch.kaiser_window(6, False, 4.0)),
        translated(42, torch.erfinv, SHARES),
        translated(43, torch.lgamma, GAMMAS),
        translated(44, torch.digamma, GAMMAS),
        translated(40, lambda x: torch.linalg.cholesky(x[:, :, None] * x[:, None] + torch.eye(6))),
        translated(45, lambda x: x + torch.ops.aten._is_all_true(x > -100) - torch.ops.aten._is_all_true(x > 0) * 2.0),
        translated(46, lambda x: x.repeat_interleave(x.shape[0], 0) + x.repeat_interleave(2, -1)[:1, :6]),
        translated(47, lambda x: torch.logaddexp(x * 500, x.flip(1) * 500)),
        translated(48, lambda x: torch.logaddexp2(x * 500, x.flip(1) * 500)),
        translated(49, lambda x: torch.floor_divide((x * 10).round() / 10, 0.1)),
        translated(50, lambda x: torch.fmod((x * 2**24).long() * 2**36 + 12345, (x * 9).long() * 2 + 1) * 1.0),
        translated(51, lambda x: torch.remainder(x * 1e6, x.flip(1).abs() + 0.1), rtol=1e-4),
        translated(52, lambda x: torch.ops.aten.remainder.Scalar(x * 1e6, -0.3), rtol=1e-4),
        translated(53, lambda x: torch.ops.aten.remainder.Scalar_Tensor(1e6, x), rtol=1e-4),
        *(
            translated(53 + dims, partial(nearest, dims=dims)) for dims in (1, 2, 3)
        ),
        *(
            translated(at, lambda x, f=function: f(x[:, None, None], infinite_places(x), 0, 1, False)[:, 0, 0])
            for at, function in ((57, torch.ops.aten.grid_sampler), (58, torch.ops.aten.grid_sampler_2d))
        ),
        translated(59, lambda x: torch.sign(x / x) + torch.sign(x), ZEROS),
        translated(60, lambda x: torch.heaviside(x / x - 1, torch.tensor([0.5])) + torch.heaviside(x, x + 2), ZEROS),
        *(
            (translations.PATCHES[at + dims], pools_places(f"adaptive_{kind}_pool{dims}d"))
            for at, kind in ((59, "avg"), (61, "max"))
            for dims in (2, 3)
        ),
        (
            translations.PATCHES[65],
            lambda folder: agrees(Computes(swaps_halves), SEQUENCE, folder, "dynamo", dims=("batch", "length", 8)),
        ),
        (
            translations.PATCHES[66],
            lambda folder: agrees(Computes(counts_fraction), np.ones((50, 6), np.float32), folder, "dynamo"),
        ),
        (
            translations.PATCHES[67],
            lambda folder: agrees(Computes(adds_to_the_first), X[:1], folder, "dynamo"),
        ),
        translated(68, frames, rtol=1e-4),
        translated(69, lambda x: torch.exp(torch.complex(x, 2 * x)).imag),
        translated(70, pools_of_five),
        translated(71, lambda x: functional.avg_pool3d(x.reshape(1, -1, 1, 2, 3), (1, 2, 2), divisor_override=5)),
        translated(72, lambda x: x.masked_select(x[0] > 0)),
        translated(73, lambda x: x + x.log().nanmedian()),
        translated(74, lambda x: torch.where(x < 1, x, torch.nan).nanmedian(1)[0]),
        translated(75, lambda x: torch.round(x).mode(1).values, np.float32([[3, 1, 2, 2, 1, 0], [5, 5, 5, 1, 1, 7]])),
        translated(76, lambda x: torch.special.erfcx(x) + torch.special.log_ndtr(-2 * x), CLOSE - 8),
        translated(77, lambda x: torch.where(x > 1, x > 2, x < 0).float()),
        translated(78, lambda x: torch.where(x > 1, True, False).float()),
        translated(79, lambda x: torch.where(x > 1, False, x < 0).float()),
        translated(80, lambda x: torch.where(x > 1, x > 2, True).float()),
        translated(81, lambda x: torch.complex(x, x.abs() * 0).angle()),
        translated(82, lambda x: torch.complex(x, x + 1).log().imag),
        translated(83, lambda x: torch.diagonal(x[:, :, None] / (x[:, None] > 0), 1, 2, 1)),
        translated(84, lambda x: torch.diagonal_copy(x[:, :, None] / (x[:, None] > 0), 1, 2, 1)),
        (constant_steps.PATCH, lambda folder: agrees(Computes(turns_by_weights), X, folder, "dynamo")),
        (distributions.PATCH, lambda folder: agrees(Computes(log_density), X, folder, "dynamo")),
        (sizes.FUNCTIONS, lambda folder: agrees(Computes(counts_rows), X, folder, "dynamo")),
        (
            growing_tables.PATCH,
            lambda folder: agrees(GrowingDistances(), SEQUENCE, folder, "dynamo", dims=("batch", "length", 8)),
        ),
        (whole_steps.PATCH, pads_to_whole_steps),
        (fourier.PATCH, lambda folder: agrees(Computes(writes_complex), X, folder, "dynamo")),
        (floor_division.PATCH, lambda folder: agrees(Computes(rounds_down), X, folder, "dynamo")),
        (
            padded_encoder.PATCH,
            lambda folder: agrees(LeavesPaddingOut(), SEQUENCE, folder, "dynamo", dims=SEQUENCE.shape),
        ),
        (
            padded_encoder.CAUSAL,
            lambda folder: agrees(MasksWhatFollows(), SEQUENCE, folder, "dynamo", dims=("batch", "length", 8)),
        ),
        (open_bounds.PATCH, lambda folder: agrees(Computes(masked_and_bounded), X, folder, "dynamo")),
        (removed_inputs.PATCH, forgets_a_removed_input),
        (narrow_steps.PATCH, lambda folder: agrees(Computes(rounds_each_step), X, folder, "dynamo")),
        (traced_operators.ATTENTION, attends_when_traced),
        (traced_operators.FUSED_ATTENTION, traced(Computes(ENCODER), SEQUENCE[:2], fixed=True)),
        (traced_operators.UNFLATTEN, traced(Computes(splits_heads), SEQUENCE, opset=12)),
        (traced_operators.EQUAL, says_that_equal_was_frozen),
        (
            exact_patterns.PATCH,
            lambda folder: agrees(Computes(divides_by_nearly_nothing), np.vstack([X, 0 * X]), folder, "dynamo"),
        ),
        (recurrent_shapes.PATCH, exports_without_steps),
        (
            projected_lstm.PATCH,
            lambda folder: agrees(ProjectsItsState(), SEQUENCE, folder, "dynamo", dims=("batch", "length", 8)),
        ),
    ]
)  # fmt: skip


def test_every_correction_has_a_case() -> None:
    assert set(CASES) == set(patches_of("onnxtool.conversion.pytorch.patches"))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:index_reduce")
@pytest.mark.parametrize("patch", CASES, ids=lambda p: p.upstream)
def test_is_needed(patch: Patch[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold_needed(patch, lambda: CASES[patch](tmp_path), monkeypatch)


def test_a_table_that_is_never_made_again_stays_as_it_is(tmp_path: Path) -> None:
    class LongPositions(GrowingPositions):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.weights[: x.shape[1]]

    module = LongPositions()
    module.make_weights(64, 8)
    assert agrees(module, SEQUENCE, tmp_path, "dynamo", dims=("batch", "length", 8))
