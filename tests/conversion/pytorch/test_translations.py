"""Operators that torch's exporter lacks or loses digits in come out as torch computes them, to the last digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxtool

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402


class Precise(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.nn.functional.logsigmoid(x), torch.expm1(x), torch.log1p(x)


class Middle(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.median(1).values, x.median(-1, keepdim=True).values, x.median()


class Distances(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.cdist(x, y, p=p) for p in (2.0, 1.0, 3.0))


class Running(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.cumprod(1), x.cumprod(-1), x.cumprod(0)


class Places(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", torch.tensor([-1.0, 0.0, 0.0, 2.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x.sort(-1).values
        among = torch.searchsorted(rows, x.flip(0) + 0, right=True)
        return torch.searchsorted(self.edges, x), torch.searchsorted(self.edges, x, right=True, out_int32=True), among


class Third(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.kthvalue(3, 1).values, x.kthvalue(2, dim=-1, keepdim=True).values


class RunningExtremes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = (x * 2).to(torch.int64)
        return (*x.cummax(1), *x.cummin(-1), *x.cummax(0), *whole.cummin(1), x.logcumsumexp(1))


class Scattered(torch.nn.Module):
    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places, start = rows.clamp(0, 4), torch.ones(5, 4)
        wide = places[:, None].expand_as(x)
        return (
            start.scatter_reduce(0, wide, x, "mean", include_self=False),
            start.scatter_reduce(0, wide, x, "mean"),
            start.scatter_reduce(0, wide, x, "amax", include_self=False),
            start.index_reduce(0, places, x, "prod", include_self=False),
            start.index_reduce(0, places, x, "mean"),
        )


class Quotients(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = [torch.div(x, by, rounding_mode=mode) for by in (-2, x | 1) for mode in ("floor", "trunc")]
        return tuple(both)


class Spectrum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.fft.rfft(x, norm="ortho")
        return found.real, found.imag, torch.fft.rfft(x.mT, dim=0).abs()


class Angles(torch.nn.Module):
    """Of frequencies of real numbers, two of which are real themselves."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.fft.rfft(x)
        frames = torch.stft(x, 16, 16, window=torch.ones(16), center=False, return_complex=True)[:, ::8]
        plane = torch.fft.rfft2(x.reshape(-1, 4, 8))
        return found.real, found.imag, found[:, ::16].angle(), frames.angle(), plane.real, plane.imag


class Spectra(torch.nn.Module):
    """Along any dims, both ways, with each norm."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        plane = torch.fft.fft2(torch.complex(x, x.flip(2)), norm="ortho")
        back = torch.fft.ifftn(plane, dim=(0, 2), norm="forward")
        return plane.real, plane.imag, back.imag, torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[1:])


class Inverse(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(16)
        parts = torch.stft(x, 16, 4, window=window, return_complex=True)
        return torch.istft(parts, 16, 4, window=window, length=64)


class Factors(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.arange(16.0).reshape(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bi,bj,ij->b", x, x, self.w)


def session(model: torch.nn.Module, path: Path, **shapes: tuple[str | int, ...]) -> onnxruntime.InferenceSession:
    report = onnxtool.convert(model.eval(), path, input_shapes=shapes, effort="quick")
    assert report.ok
    return onnxruntime.InferenceSession(path)


def test_logarithms_and_exponentials_keep_the_digits_of_small_numbers(tmp_path: Path) -> None:
    net = session(Precise(), tmp_path / "out.onnx", x=("batch", 4))
    magnitudes = 10.0 ** np.arange(-12, 2)
    x = np.concatenate([magnitudes, -magnitudes, [0, 80, -80, np.inf]]).astype(np.float32).reshape(-1, 4)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        expected = -np.logaddexp(0, -wide), np.expm1(wide), np.log1p(wide)
    for found, exact in zip(net.run(None, {"x": x}), expected, strict=True):
        np.testing.assert_allclose(found, exact, rtol=2e-6)


def test_a_median_is_the_lower_of_the_two_in_the_middle(tmp_path: Path) -> None:
    net = session(Middle(), tmp_path / "out.onnx", x=("batch", "length", 4))
    for length in (1, 2, 5, 8):
        x = np.random.default_rng(length).standard_normal((3, length, 4)).astype(np.float32)
        for found, exact in zip(net.run(None, {"x": x}), Middle()(torch.from_numpy(x)), strict=True):
            np.testing.assert_array_equal(found, exact.numpy())


def test_rows_close_together_keep_their_distance(tmp_path: Path) -> None:
    net = session(Distances(), tmp_path / "out.onnx", x=("n", 3), y=("m", 3))
    x = np.random.default_rng(0).uniform(100, 101, (4, 3)).astype(np.float32)
    y = np.concatenate([x[:2] + np.float32(1e-3), x[2:3], x[:1] - 50])
    apart = np.abs(x[:, None].astype(np.float64) - y[None])
    exact = [np.sqrt((apart**2).sum(-1)), apart.sum(-1), (apart**3).sum(-1) ** (1 / 3)]
    for found, wanted in zip(net.run(None, {"x": x, "y": y}), exact, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-12)


def test_distances_of_doubles_have_exponents_of_doubles(tmp_path: Path) -> None:
    class Powers(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cdist(x, x + 1, p=2.7)

    x = np.random.default_rng(0).standard_normal((4, 3)) * 100
    target = tmp_path / "m.onnx"
    onnxtool.convert(Powers(), target, sample={"x": x}, input_dtypes={"x": "float64"})
    (found,) = onnxruntime.InferenceSession(target).run(None, {"x": x})
    assert np.abs(found / Powers()(torch.from_numpy(x)).numpy() - 1).max() < 1e-13


@pytest.mark.parametrize("module", [Running, Places, Third], ids=lambda m: m.__name__)
def test_what_the_exporter_has_no_translation_for(module: type[torch.nn.Module], tmp_path: Path) -> None:
    net = session(module(), tmp_path / "out.onnx", x=("batch", "length", 4))
    for length in (3, 7):
        x = np.random.default_rng(length).integers(-3, 4, (5, length, 4)).astype(np.float32) / 2
        for found, exact in zip(net.run(None, {"x": x}), module()(torch.from_numpy(x)), strict=True):
            np.testing.assert_array_equal(found, exact.numpy())
            assert found.dtype == exact.numpy().dtype


def test_the_order_in_which_factors_are_multiplied_is_no_branch(tmp_path: Path) -> None:
    net = session(Factors(), tmp_path / "out.onnx", x=("batch", 4))
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(net.run(None, {"x": x})[0], Factors()(torch.from_numpy(x)).numpy(), rtol=1e-5)


def test_running_extremes_with_their_places_from_ties_infinities_and_nan(tmp_path: Path) -> None:
    net = session(RunningExtremes(), tmp_path / "out.onnx", x=("batch", "length"))
    nan, inf = np.nan, np.inf
    plain = np.array([[1, 1, 0, 2, 2, -1], [-90, 80, 80, -3, 0, 0]], np.float32)
    odd = np.array([[nan, 1, 2, nan, 0, 0], [-inf, -inf, inf, 0, inf, -inf]], np.float32)
    for x in (plain, plain[:, :1], odd):
        expected = RunningExtremes()(torch.from_numpy(x))
        for i, (found, exact) in enumerate(zip(net.run(None, {"x": x}), expected, strict=True)):
            if x is not odd or i not in (6, 7):  # integers made of NaN
                np.testing.assert_allclose(found, exact.numpy(), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_reductions_of_scattered_rows_that_repeat_are_none_or_infinite(tmp_path: Path) -> None:
    shapes, path = {"x": ("n", 4), "rows": ("n",)}, tmp_path / "out.onnx"
    assert onnxtool.convert(Scattered(), path, input_shapes=shapes, input_dtypes={"rows": "int64"}, effort="quick").ok
    net = onnxruntime.InferenceSession(path)
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    x[3] = -np.inf
    rows = np.array([0, 4, 0, 2, 4, 4])
    expected = Scattered()(torch.from_numpy(x), torch.from_numpy(rows))
    for found, exact in zip(net.run(None, {"x": x, "rows": rows}), expected, strict=True):
        np.testing.assert_allclose(found, exact.numpy(), rtol=1e-5)


def test_quotients_of_large_integers_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    assert onnxtool.convert(
        Quotients(), path, input_shapes={"x": ("n",)}, input_dtypes={"x": "int64"}, effort="quick"
    ).ok
    x = np.array([2**53 + 1, -(2**53) - 1, 2**24 + 1, -7, 0])
    found = onnxruntime.InferenceSession(path).run(None, {"x": x})
    for value, by, mode in zip(found, (-2, -2, x | 1, x | 1), (np.floor_divide, None) * 2, strict=True):
        floored = np.floor_divide(x, by)
        exact = floored if mode else floored + ((floored < 0) & (floored * by != x))
        np.testing.assert_array_equal(value, exact)


def test_spectra_of_odd_lengths_keep_their_digits(tmp_path: Path) -> None:
    net = session(Spectrum(), tmp_path / "out.onnx", x=("batch", "length"))
    for length in (1, 6, 24, 1030):
        x = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
        exact = np.fft.rfft(x.astype(np.float64), norm="ortho")
        real, imaginary, size = net.run(None, {"x": x})
        np.testing.assert_allclose(real, exact.real, atol=3e-6)
        np.testing.assert_allclose(imaginary, exact.imag, atol=3e-6)
        np.testing.assert_allclose(size, np.abs(np.fft.rfft(x.T.astype(np.float64), axis=0)), atol=1e-3)


def test_what_is_real_in_the_spectrum_of_real_numbers_has_no_angle(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"  # not judged: an angle of rounding alone is any, wherever both parts cancel
    assert onnxtool.convert(Angles().eval(), path, input_shapes={"x": ("batch", 32)}, verify_result=False).ok
    net = onnxruntime.InferenceSession(path)
    x = np.random.default_rng(3).standard_normal((500, 32)).astype(np.float32)
    exact, plane = np.fft.rfft(x.astype(np.float64)), np.fft.rfft2(x.reshape(-1, 4, 8).astype(np.float64))
    frames = np.fft.rfft(x.reshape(-1, 2, 16).astype(np.float64))[..., ::8].transpose(0, 2, 1)
    expected = exact.real, exact.imag, np.angle(exact[:, ::16]), np.angle(frames), plane.real, plane.imag
    for found, wanted in zip(net.run(None, {"x": x}), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_spectra_of_several_dims_keep_their_digits(tmp_path: Path) -> None:
    net = session(Spectra(), tmp_path / "out.onnx", x=("batch", "height", "width"))
    for shape in ((1, 1, 1), (2, 3, 4), (3, 6, 9), (2, 32, 30)):
        x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        plane = np.fft.fft2(x + 1j * x[..., ::-1].astype(np.float64), norm="ortho")
        back = np.fft.ifftn(plane, axes=(0, 2), norm="forward")
        real, imaginary, inverse, again = net.run(None, {"x": x})
        np.testing.assert_allclose(real, plane.real, atol=5e-6)
        np.testing.assert_allclose(imaginary, plane.imag, atol=5e-6)
        np.testing.assert_allclose(inverse, back.imag, atol=2e-5 * back.size**0.5)
        np.testing.assert_allclose(again, x, atol=5e-6)


def test_a_fourier_neural_operator_converts(tmp_path: Path) -> None:
    weight = torch.randn(3, 5, 4, 3, dtype=torch.cfloat)

    class Operator(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = torch.fft.rfft2(x)
            kept = torch.zeros(x.shape[0], 5, found.shape[2], found.shape[3], dtype=torch.cfloat)
            kept[:, :, :4, :3] = torch.einsum("bixy,ioxy->boxy", found[:, :, :4, :3], weight)
            return torch.fft.irfft2(kept, s=x.shape[-2:])

    net = session(Operator(), tmp_path / "out.onnx", x=("batch", 3, 12, 14))
    x = torch.randn(4, 3, 12, 14)
    np.testing.assert_allclose(net.run(None, {"x": x.numpy()})[0], Operator()(x), atol=1e-5)


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.GRU(4, 6, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded = torch.nn.utils.rnn.pad_packed_sequence(self.inner(packed)[0], True, total_length=x.shape[1])
        return padded[0].sum(1)


def test_rows_of_lengths_of_their_own_need_no_sample(tmp_path: Path) -> None:
    """Torch refuses the zeros among random lengths, and takes memory for each step of long ones."""
    torch.manual_seed(0)
    module = Packed().eval()
    shapes = {"x": ("batch", 7, 4), "lengths": ("batch",)}
    path, dtypes = tmp_path / "out.onnx", {"lengths": "int64"}
    assert onnxtool.convert(module, path, input_shapes=shapes, input_dtypes=dtypes, effort="quick").ok
    net = onnxruntime.InferenceSession(path)
    x, lengths = torch.randn(3, 7, 4), torch.tensor([7, 3, 1])
    with torch.inference_mode():
        np.testing.assert_allclose(
            net.run(None, {"x": x.numpy(), "lengths": lengths.numpy()})[0], module(x, lengths), atol=1e-6
        )


def test_an_inverse_spectrogram_is_the_signal(tmp_path: Path) -> None:
    net = session(Inverse(), tmp_path / "out.onnx", x=("batch", 64))
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    np.testing.assert_allclose(net.run(None, {"x": x})[0], x, atol=1e-5)


@pytest.mark.parametrize(("n_fft", "rank"), [(400, 2), (30, 1)])
def test_spectra_of_lengths_that_are_no_power_of_two_keep_their_digits(n_fft: int, rank: int, tmp_path: Path) -> None:
    class Frames(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            window = torch.hann_window(n_fft - 7)
            found = torch.stft(x, n_fft, n_fft // 3, n_fft - 7, window, normalized=rank == 1, return_complex=True)
            return torch.view_as_real(found)

    net = session(Frames(), tmp_path / "out.onnx", x=("batch", "samples") if rank == 2 else (1500,))
    x = np.random.default_rng(0).standard_normal((3, 1500)[2 - rank :])
    exact = Frames()(torch.from_numpy(x)).numpy()
    found = net.run(None, {"x": x.astype(np.float32)})[0]
    assert np.abs(found - exact).max() < 2e-6 * np.abs(exact).max()


def test_a_denoiser_of_spectra_takes_recordings_of_any_length(tmp_path: Path) -> None:
    class Denoiser(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            options: dict[str, Any] = {"window": torch.hann_window(30), "normalized": True}
            found = torch.stft(x, 36, 12, 30, return_complex=True, **options)
            kept = found * (found.abs() > 0.5)
            return torch.istft(kept, 36, 12, 30, length=x.shape[1], **options), torch.istft(
                found, 36, 12, 30, **options
            )

    net = session(Denoiser(), tmp_path / "out.onnx", x=("batch", "samples"))
    for samples in (40, 121, 144):
        x = torch.randn(2, samples)
        for found, expected in zip(net.run(None, {"x": x.numpy()}), Denoiser()(x), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)


class Pairs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        alike = x @ x.T
        pairs = torch.triu_indices(x.shape[0], x.shape[0], 1)
        below = torch.tril_indices(x.shape[0], x.shape[0], offset=-1)
        apart = alike.masked_select(~torch.eye(x.shape[0], dtype=torch.bool))
        spread = torch.cov(x.T), torch.corrcoef(x.T), torch.cov(x[:, 0], correction=0), torch.kron(x[0, :2], x)
        ranks = torch.nn.functional.one_hot(x.argsort(0), x.shape[0] + 1)
        return alike[pairs[0], pairs[1]], alike[below[0], below[1]], apart, ranks, *spread, alike.fill_diagonal_(7)


def test_what_is_made_of_pairs_of_rows_takes_any_number_of_them(tmp_path: Path) -> None:
    net = session(Pairs(), tmp_path / "out.onnx", x=("batch", 4))
    for rows in (2, 3, 9):
        x = torch.randn(rows, 4)
        for found, expected in zip(net.run(None, {"x": x.numpy()}), Pairs()(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class Divides(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x // y, x % y, x // 0.1, x % 0.1, torch.logaddexp(x, y), torch.logaddexp2(x, y)


def test_floats_are_divided_and_added_as_torch_does_far_from_zero_and_at_whole_quotients(tmp_path: Path) -> None:
    shapes: dict[str, Any] = dict.fromkeys("xy", ("batch", 4))
    assert onnxtool.convert(Divides(), tmp_path / "out.onnx", input_shapes=shapes, effort="quick").ok
    x = np.array([[1, 0.3, -1, -7e8], [500, -500, 3e4, -0.7], [np.inf, -np.inf, 5, 0]], np.float32)
    y = np.array([[0.1, 0.1, 0.1, 3], [499, -500, -3e4, np.inf], [np.inf, -np.inf, 0, 0.5]], np.float32)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x, "y": y})
    expected = Divides()(torch.from_numpy(x), torch.from_numpy(y))
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=2e-7)
    assert found[0][0, 0] == 9  # the quotient rounds to 10
    np.testing.assert_allclose(found[4][1, :2], [499 + np.log1p(np.e), -500 + np.log(2)], rtol=1e-6)


class Enlarges(torch.nn.Module):
    def __init__(self, mode: str, **to: Any) -> None:
        super().__init__()
        self.mode, self.to_ = mode, to

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, mode=self.mode, **self.to_)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("to", [{"size": (7, 9)}, {"scale_factor": 1.7}, {"scale_factor": (2, 0.37)}], ids=str)
def test_the_nearest_pixel_is_torchs(mode: str, to: dict[str, Any], tmp_path: Path) -> None:
    module = Enlarges(mode, **to)
    shapes = {"x": ("batch", 1, "height", "width")}
    onnxtool.convert(module, tmp_path / "out.onnx", input_shapes=shapes, verify_result=False)
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    for height, width in ((7, 9), (35, 18), (129, 63), (10, 100), (3, 17)):
        x = np.arange(height * width, dtype=np.float32).reshape(1, 1, height, width)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], module(torch.from_numpy(x)).numpy())


def test_twice_as_many_pixels_are_the_runtimes_own(tmp_path: Path) -> None:
    shapes = {"x": ("batch", 1, "height", "width")}
    onnxtool.convert(Enlarges("nearest", scale_factor=2), tmp_path / "out.onnx", input_shapes=shapes, effort="quick")
    assert "Resize" in {node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node}


class Pools(torch.nn.Module):
    """Windows that are alike, that are not, of a size that is kept, and of one picture without a batch."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pool = torch.nn.functional
        alike, kept = pool.adaptive_avg_pool2d(x[..., :6, :4], (3, 2)), pool.adaptive_avg_pool2d(x, (None, 3))
        highest, places = pool.adaptive_max_pool2d(x, (3, 2), return_indices=True)
        largest = pool.adaptive_max_pool2d(x[0, :, :6, :4], (3, 1))
        return alike, kept, highest, places, largest, pool.adaptive_avg_pool2d(x[0], (4, 5))


def test_adaptive_pools_of_any_size(tmp_path: Path) -> None:
    net = session(Pools(), tmp_path / "out.onnx", x=("batch", 3, "height", "width"))
    for height, width in ((6, 5), (7, 13), (16, 8)):
        x = np.random.default_rng(height).integers(-3, 4, (2, 3, height, width)).astype(np.float32)
        x[0, 0, 0, 0] = np.inf
        for found, expected in zip(net.run(None, {"x": x}), Pools()(torch.from_numpy(x)), strict=True):
            assert found.dtype == expected.numpy().dtype
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)


class Attends(torch.nn.Module):
    """Of three dims, of five, and of heads that are broadcast."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        attend, last = torch.nn.functional.scaled_dot_product_attention, x.flip(-1)
        split = x.unflatten(-1, (2, 1, 4)).movedim(1, -2)  # [batch, 2, 1, length, 4]
        mask = (torch.arange(x.shape[1]) % 3 > 0).expand(x.shape[1], -1)
        return (
            attend(x, last, x, is_causal=True),
            attend(x, last, x, attn_mask=mask, scale=0.7),
            attend(x, x, last, attn_mask=mask & (torch.arange(x.shape[1])[:, None] > 1)),  # leaves nothing to the first
            attend(split, split.flip(-1), split, is_causal=True),
            attend(split[:, :, 0], split[:, :1, 0], split[:, 1:, 0]),
        )


def test_attention_of_any_number_of_dims(tmp_path: Path) -> None:
    path, shapes = tmp_path / "out.onnx", {"x": ("batch", "length", 8)}
    onnxtool.convert(Attends(), path, input_shapes=shapes, verify_result=False)
    net = onnxruntime.InferenceSession(path)
    for length in (1, 5, 12):
        x = np.random.default_rng(length).standard_normal((2, length, 8)).astype(np.float32)
        for found, expected in zip(net.run(None, {"x": x}), Attends()(torch.from_numpy(x)), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-6)


class Samples(torch.nn.Module):
    """A picture at the nearest pixel, and a volume with all that may lie around it."""

    def forward(self, image: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sample = torch.nn.functional.grid_sample
        volume, inside = image[:, :, None].expand(-1, -1, 2, -1, -1), torch.cat([places, places[..., :1]], -1)[:, None]
        around = [sample(volume, inside, padding_mode=p, align_corners=True) for p in ("zeros", "border", "reflection")]
        return sample(image, places, mode="nearest", align_corners=False), *around


def test_what_is_sampled_nowhere_is_torchs(tmp_path: Path) -> None:
    shapes = {"image": ("batch", 1, 3, 4), "places": ("batch", 2, 3, 2)}
    onnxtool.convert(Samples(), tmp_path / "out.onnx", input_shapes=shapes, verify_result=False)
    image = np.arange(1, 13, dtype=np.float32).reshape(1, 1, 3, 4)
    places = np.array([0, np.nan, np.nan, 0, np.inf, 0, 0, -np.inf, np.nan, np.nan, 0.3, -0.8], np.float32)
    places = places.reshape(1, 2, 3, 2)
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"image": image, "places": places})
    for a, b in zip(found, Samples()(torch.from_numpy(image), torch.from_numpy(places)), strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-5)


class LargestAround(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pool = torch.nn.MaxPool1d(3, stride=1, padding=1, dilation=2)
        found, places = torch.nn.functional.max_pool1d(x, 2, return_indices=True)
        return pool(x), found, places, torch.max_pool1d(x[0], (3,), (2,), ceil_mode=True)


def test_the_largest_of_windows_at_any_length(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    options: dict[str, Any] = {"exporter": "dynamo", "effort": "quick"}
    assert onnxtool.convert(LargestAround(), path, input_shapes={"x": ("batch", 2, "length")}, **options).ok
    for length in (4, 7, 32):
        x = torch.randn(3, 2, length)
        found = onnxruntime.InferenceSession(path).run(None, {"x": x.numpy()})
        for got, wanted in zip(found, LargestAround()(x), strict=True):
            np.testing.assert_array_equal(got, wanted.numpy())


class Packs(torch.nn.Module):
    """Texts of several lengths, in any order; padded again up to the longest of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.LSTM(4, 3, bidirectional=True)
        self.second = torch.nn.GRU(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        early = pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, counted = pad_packed_sequence(self.first(early)[0])
        states, last = self.second(packed)
        return outputs, counted, torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0], last


def test_packed_sequences_are_padded_to_the_longest(tmp_path: Path) -> None:
    module = Packs().eval()
    rows, lengths = np.random.default_rng(0).standard_normal((3, 9, 4)).astype(np.float32), np.array([4, 7, 2])
    shapes: dict[str, Any] = {"x": ("batch", "length", 4), "lengths": ("batch",)}
    sample: dict[str, Any] = {"x": rows, "lengths": lengths}
    assert onnxtool.convert(module, tmp_path / "out.onnx", input_shapes=shapes, sample=sample, effort="quick").ok
    net = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    for given in ([1, 2, 3], [9, 1, 9], [5]):
        feeds = {"x": rows[: len(given)], "lengths": np.array(given)}
        expected = module(*(torch.from_numpy(array) for array in feeds.values()))
        for found, wanted in zip(net.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-4, atol=1e-6)
