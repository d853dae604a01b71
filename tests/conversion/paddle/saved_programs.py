"""Writes small programs with PaddlePaddle: `python saved_programs.py FOLDER`. A process of its own: see the adapter."""

import os
import sys
import warnings

warnings.simplefilter("ignore")
import paddle  # noqa: E402
from paddle import nn  # noqa: E402
from paddle.nn import functional  # noqa: E402
from paddle.static import InputSpec  # noqa: E402


class Images(nn.Layer):  # type: ignore[misc]
    """Attributes in double precision: a slope, an epsilon, the scale of an interpolation; dropout that is off."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2D(3, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.drop, self.slope = nn.Dropout(0.5), nn.LeakyReLU(0.2)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        found = self.slope(self.norm(self.convolution(image)))
        return functional.interpolate(self.drop(found), scale_factor=2.0, mode="nearest")


class Tokens(nn.Layer):  # type: ignore[misc]
    """Integers and floats, a bias of 1e-6, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)

    def forward(self, ids: paddle.Tensor, x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        total = self.embedding(ids) * x
        return total * paddle.rsqrt((total * total).mean(-1, keepdim=True) + 1e-6), functional.log_softmax(x * 40, -1)


class Chosen(nn.Layer):  # type: ignore[misc]
    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return paddle.erfinv(paddle.nn.functional.relu(x))


class Recurrent(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.SimpleRNN(4, 4)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.cells(x)[0]


class Old(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.convolution = nn.Embedding(10, 8), nn.Conv2D(1, 2, 3)

    def forward(self, ids: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
        return functional.relu(self.convolution((self.embedding(ids) + x).unsqueeze(1)))


class Sampled(nn.Layer):  # type: ignore[misc]
    def forward(self, image: paddle.Tensor, grid: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        return functional.grid_sample(image, grid), paddle.all(image > 0)


class Dilated(nn.Layer):  # type: ignore[misc]
    """Paddle takes the dilations for 1, since the padding is SAME."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1D(2, 3, 3, dilation=2, padding="SAME")

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.convolution(x)


TOKENS = [InputSpec([None, None], "int64", "ids"), InputSpec([None, None, 8], "float32", "x")]
NEW = {
    "images": (Images, [InputSpec([None, 3, None, None], "float32", "image")]),
    "tokens": (Tokens, TOKENS),
    "sampled": (
        Sampled,
        [InputSpec([None, 2, 5, 5], "float32", "image"), InputSpec([None, 4, 4, 2], "float32", "grid")],
    ),
    "dilated": (Dilated, [InputSpec([None, 2, None], "float32", "x")]),
    "chosen": (Chosen, [InputSpec([None, 4], "float32", "x")]),
    "recurrent": (Recurrent, [InputSpec([None, None, 4], "float32", "x")]),
}

if __name__ == "__main__":
    old = os.environ.get("FLAGS_enable_pir_api") == "0"  # noqa: SIM112  (as Paddle spells it)
    for name, (module, specs) in ({"old": (Old, TOKENS)} if old else NEW).items():
        paddle.seed(0)
        model = module()
        model.eval()
        paddle.jit.save(model, f"{sys.argv[1]}/{name}", specs)
