"""Inputs of models of the transformers library, found from signature, configuration and a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnxruntime as ort
import pytest
import torch

import onnxtool
from onnxtool.conversion.pytorch.usual_inputs import left_out, takes_wider, usual_domains, usual_shapes


class PreTrainedModel(torch.nn.Module):
    """As models of transformers are recognised, whether or not that is installed."""

    main_input_name: Any = "input_ids"
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(**self.settings)
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(6, 3)


class Captions(PreTrainedModel):
    """Cannot do without the text, though its signature says so."""

    main_input_name = "pixel_values"
    settings: ClassVar = {"vision_config": SimpleNamespace(image_size=8, num_channels=1)}

    def forward(self, pixel_values: Any, attention_mask: Any = None, input_ids: Any = None) -> Any:
        return pixel_values.mean((1, 2, 3))[:, None] + input_ids * attention_mask


class Matches(PreTrainedModel):
    """Takes texts and recordings of different numbers."""

    settings: ClassVar = {"num_mel_bins": 6}

    def forward(self, input_ids: Any = None, attention_mask: Any = None, input_features: Any = None) -> Any:
        return (input_ids * attention_mask).sum(1)[:, None] * self.layer(input_features).sum((1, 2))[None]


class Hears(PreTrainedModel):
    main_input_name = "input_features"
    settings: ClassVar = {"num_mel_bins": 6}

    def forward(self, input_features: Any, attention_mask: Any = None) -> Any:
        return self.layer(input_features) * attention_mask[..., None]


class Transposed(Hears):
    def forward(self, input_features: Any, attention_mask: Any = None) -> Any:
        return super().forward(input_features.mT, attention_mask)


class Codec(PreTrainedModel):
    main_input_name = "input_values"

    def forward(self, input_values: Any, padding_mask: Any = None) -> Any:
        _, channels, _ = input_values.shape
        return input_values * padding_mask[:, None] * channels


class Prompted(PreTrainedModel):
    main_input_name = ("pixel_values", "task_inputs")
    settings: ClassVar = {"image_size": 8, "task_seq_len": 5, "text_encoder_vocab_size": 9}

    def forward(self, pixel_values: Any, task_inputs: Any, input_points: Any = None, input_labels: Any = None) -> Any:
        return pixel_values.sum() + task_inputs.sum() + input_points.sum() + input_labels.sum()


class Reads(PreTrainedModel):
    """Bytes, by a table of them."""

    main_input_name = "inputs"
    settings: ClassVar = {"vocab_size": 4, "image_size": 8}

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Embedding(4, 3)

    def forward(self, inputs: Any, attention_mask: Any = None) -> Any:
        return self.layer(inputs) * attention_mask[..., None]


class Sees(PreTrainedModel):
    main_input_name = "inputs"
    settings: ClassVar = {"vocab_size": 4, "image_size": 8, "num_frames": 2}

    def forward(self, inputs: Any, attention_mask: Any = None) -> Any:
        _, _, _, _ = inputs.shape
        return inputs


class SeesPatches(PreTrainedModel):
    main_input_name = "flattened_patches"
    settings: ClassVar = {"seq_len": 3, "patch_embed_hidden_size": 4, "is_encoder_decoder": True}

    def forward(self, flattened_patches: Any, attention_mask: Any = None, decoder_input_ids: Any = None) -> Any:
        return flattened_patches.sum(2) * attention_mask, decoder_input_ids


class Decides(PreTrainedModel):
    main_input_name = "states"
    settings: ClassVar = {"state_dim": 6, "act_dim": 2, "max_ep_len": 9}

    def forward(
        self, states: Any, actions: Any, rewards: Any = None, returns_to_go: Any = None, timesteps: Any = None
    ) -> Any:
        return self.layer(states) + actions.sum() + returns_to_go + torch.eye(9)[timesteps, :1]


class LooksAtObjects(PreTrainedModel):
    settings: ClassVar = {"visual_feat_dim": 6, "visual_pos_dim": 4}

    def forward(
        self, input_ids: Any, visual_feats: Any = None, visual_pos: Any = None, visual_attention_mask: Any = None
    ) -> Any:
        return input_ids.sum() + self.layer(visual_feats) * visual_attention_mask[..., None] + visual_pos.sum()


class Unknown(PreTrainedModel):
    def forward(self, input_ids: Any, amino_acids: Any) -> Any:
        return input_ids + amino_acids


class Counts(PreTrainedModel):
    """A loop over the tokens, as CANINE and Funnel have it."""

    settings: ClassVar = {"max_position_embeddings": 4}

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        rows = []
        for i in range(input_ids.shape[1]):
            rows.insert(i, self.layer(torch.ones(6)) * input_ids[:, i : i + 1])
        return torch.stack(rows, 1) * attention_mask[:, :, None]


TEXTS = ("batch", "sequence")


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        (
            Captions,
            {"pixel_values": ("batch", 1, 8, 8), "attention_mask": TEXTS, "input_ids": TEXTS},
        ),
        (
            Matches,
            {
                "input_ids": ("texts", "sequence"),
                "attention_mask": ("texts", "sequence"),
                "input_features": ("recordings", "frames", 6),
            },
        ),
        (Hears, {"input_features": ("batch", "frames", 6), "attention_mask": ("batch", "frames")}),
        (Transposed, {"input_features": ("batch", 6, "frames"), "attention_mask": ("batch", "frames")}),
        (Codec, {"input_values": ("batch", 1, "samples"), "padding_mask": ("batch", "samples")}),
        (
            Prompted,
            {
                "pixel_values": ("batch", 3, 8, 8),
                "task_inputs": ("batch", 5),
                "input_points": ("batch", "prompts", "points", 2),
                "input_labels": ("batch", "prompts", "points"),
            },
        ),
        (Reads, {"inputs": TEXTS, "attention_mask": TEXTS}),
        (Sees, {"inputs": ("batch", 3, 8, 8)}),
        (
            SeesPatches,
            {
                "flattened_patches": ("batch", "patches", 6),
                "attention_mask": ("batch", "patches"),
                "decoder_input_ids": ("batch", "decoder_sequence"),
            },
        ),
        (
            Decides,
            {
                "states": (*TEXTS, 6),
                "actions": (*TEXTS, 2),
                "returns_to_go": (*TEXTS, 1),
                "timesteps": TEXTS,
            },
        ),
        (
            LooksAtObjects,
            {
                "input_ids": TEXTS,
                "visual_feats": ("batch", "objects", 6),
                "visual_pos": ("batch", "objects", 4),
                "visual_attention_mask": ("batch", "objects"),
            },
        ),
        (Unknown, {}),
    ],
)
def test_what_a_model_needs_is_found(kind: type[PreTrainedModel], shapes: dict[str, Any]) -> None:
    found = usual_shapes(kind())
    assert found == shapes
    assert list(found) == list(shapes), "in the order of the arguments"


def test_integers_that_no_name_tells_have_a_domain() -> None:
    domains = usual_domains(Prompted())
    assert {name: (d.low, d.high) for name, d in domains.items()} == {"task_inputs": (0, 9), "input_labels": (0, 2)}
    assert usual_domains(Reads())["inputs"].high == 4
    assert "inputs" not in usual_domains(Sees())
    assert usual_domains(SeesPatches())["flattened_patches"].values[:2] == ((0, 1, 2),) * 2
    assert left_out(Decides(), usual_shapes(Decides())) == [], "rewards are for training"


def test_a_dim_that_the_model_makes_a_number_of_has_its_usual_size(tmp_path: Path) -> None:
    report = onnxtool.convert(Counts(), tmp_path / "m.onnx", effort="quick")
    assert report.ok and [i.shape for i in report.inputs] == [("batch", 4), ("batch", 4)]
    (note,) = [n for n in report.notes if "since the model makes a number of it" in n]
    assert note.startswith("exported for a sequence of 4") and "for i in range(input_ids.shape[1])" in note
    assert note.endswith("another one: --input-shape input_ids:batch,N")
    feeds = {"input_ids": np.arange(12).reshape(3, 4), "attention_mask": np.ones((3, 4), np.int64)}
    (found,) = ort.InferenceSession(tmp_path / "m.onnx").run(None, feeds)
    expected = Counts()(*(torch.from_numpy(a) for a in feeds.values())).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


class SeesSquares(PreTrainedModel):
    largest = 16

    def forward(self, input_ids: Any, pixel_values: Any) -> Any:
        height, width = pixel_values.shape[-2:]
        assert height == width <= self.largest and input_ids.shape[1] == 5
        return pixel_values


def test_squares_of_another_size_are_other_sizes_too() -> None:
    assert takes_wider(SeesSquares(), {"input_ids": ("batch", 5), "pixel_values": ("batch", 3, 8, 8)})
    assert not takes_wider(SeesSquares(), {"input_ids": ("batch", 5), "pixel_values": ("batch", 3, 16, 16)})
    assert not takes_wider(SeesSquares(), {"input_ids": ("batch", 5)})
