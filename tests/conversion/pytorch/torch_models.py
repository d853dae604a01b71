"""Small torch modules, one for each thing that is known to go wrong when models are exported."""

from __future__ import annotations

import operator
import typing
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Dropped(nn.Module):
    """Dropout and batch normalization: wrong results unless in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Sizes(nn.Module):
    """Uses its batch size as a number: an exporter that sees batch 1 freezes it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1) / x.shape[0] + torch.arange(x.shape[0], dtype=x.dtype)[:, None]


class Pair(nn.Module):
    """Two inputs that share two dynamic dims."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left @ right.transpose(1, 2)).softmax(-1)


class Tokens(nn.Module):
    """Integer and boolean inputs, an optional argument, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(
        self, input_ids: torch.Tensor, keep: torch.Tensor, bias: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        hidden = self.embed(input_ids) * self.scale * keep.unsqueeze(-1)
        if bias is not None:
            hidden = hidden + bias
        return {"hidden": hidden, "pooled": hidden.mean(1), "count": keep.sum(1)}


class Structured(nn.Module):
    """A tuple, a dict and a list go in; nested things come out."""

    def forward(
        self, pair: tuple[torch.Tensor, torch.Tensor], named: dict[str, torch.Tensor], many: list[torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, None], dict[str, torch.Tensor]]:
        a, b = pair
        return a + b, (named["x"] * 2, None), {"all": torch.cat(many, 1), "y": named["y"]}


@dataclass
class Boxes:
    """A result of a class of its own."""

    boxes: torch.Tensor
    scores: torch.Tensor


class Keywords(nn.Module):
    """Keyword-only arguments, and a dataclass as result."""

    def forward(self, image: torch.Tensor, *, offset: torch.Tensor) -> Boxes:
        return Boxes(image + offset, image.sum(-1))


class InPlace(nn.Module):
    """Writes into its input and into slices."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += 1
        y = x.clone()
        y[:, 0] = 0
        y[:, 1:].mul_(2)
        return y


class Tied(nn.Module):
    """One weight used as embedding and as output layer."""

    def __init__(self, words: int = 500, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


class Branching(nn.Module):
    """Takes one way or the other depending on the data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1


class Looping(nn.Module):
    """A loop and a branch that only TorchScript keeps."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for i in range(x.size(0)):
            total = total + x[i] if bool(x[i].sum() > 0) else total - 1
        return total


class Linear16(nn.Module):
    """A network that computes in a small float type."""

    def __init__(self, dtype: str = "float16") -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(getattr(torch, dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Strided(nn.Module):
    """Height and width must be multiples of 32."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 32, 32)
        self.up = nn.ConvTranspose2d(4, 3, 32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x)) + x


class Alias(nn.Module):
    """Gives an input back, and one tensor twice."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = x * 2
        return x, y, y


class Recurrent(nn.Module):
    """LSTM over a dynamic length."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 7, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        return self.lstm(x)


class Attending(nn.Module):
    """A transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Weighing(nn.Module):
    """Attention by torch's own function, with each kind of mask."""

    def __init__(self, mask: str = "", grouped: bool = False) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.mask, self.grouped = mask, grouped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        place = torch.arange(length)
        masks = {"bool": (place[None, :] >= 2) & (place[:, None] != 1), "float": place[None, :] * -0.1}
        if self.grouped:
            k, v = k[:, :1], v[:, :1]
        y = scaled_dot_product_attention(
            q, k, v, masks.get(self.mask), is_causal=self.mask == "causal", enable_gqa=self.grouped
        )
        return y.transpose(1, 2).reshape(batch, length, 16)


class Homonyms(nn.Module):
    """Weights that are called like an input, like an operation and like an output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.1, 0.2, 0.3, 0.4]))
        self.x = nn.Parameter(torch.full((4,), 2.0))
        self.output = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean).mean(1, keepdim=True) * self.x + self.output


class Masked(nn.Module):
    """Takes nothing but a boolean mask."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(mask, 0.0)


class Gambling(nn.Module):
    """Drops out at random in evaluation mode too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5)


class GamblingBySize(Gambling):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + 1 if x.shape[0] > 1 else x)


class GamblingByData(Gambling):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + 1 if x.sum() > 0 else x)


class Counting(nn.Module):
    """Turns a size into a number, which exporters take for a constant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], operator.index(x.shape[1]) * 4).mean(1)


class Variadic(nn.Module):
    """Any number of tensors."""

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        return torch.stack(xs).sum(0)


class Named(typing.NamedTuple):
    """A named tuple as result."""

    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]


class Tupled(nn.Module):
    """Gives a named tuple."""

    def forward(self, x: torch.Tensor) -> Named:
        return Named(x + 1, (x, x * 2))


class Scaled(nn.Module):
    """Scale known at build time: shows factory arguments."""

    def __init__(self, width: int, factor: float = 1.0, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 2, bias=bias)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.factor


class Trying(nn.Module):
    """Goes on after torch has raised an error, which depends on the size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return x.reshape(-1, 5, 4).flip(1).reshape(x.shape)
        except RuntimeError:
            return x
