"""Signing and verifying with keys on this machine, through the package model-signing of the OpenSSF."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.model.provenance.signing import PASSWORD
from onnxtool.model.provenance.verify import verify

pytest.importorskip("model_signing", reason="the extra signing is not installed")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

Tool = Callable[..., "CompletedProcess[str]"]
Keys = tuple[Path, Path]


def make_keys(folder: Path, name: str, password: bytes | None = None) -> Keys:
    """A private and a public key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    pem = serialization.Encoding.PEM
    lock = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, lock))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return make_keys(tmp_path, "mine")


@pytest.fixture(params=["inline", "external"])
def model(request: pytest.FixtureRequest, tmp_path: Path, digits_onnx: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    io.save(io.load(digits_onnx), folder / "m.onnx", external=request.param == "external")
    (folder / "README.md").write_text("not part of the model")
    return folder / "m.onnx"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_signed_model_verifies_and_others_do_not(model: Path, keys: Keys, tmp_path: Path) -> None:
    made = verify(model, sign=keys[0])
    assert (made.ok, made.signature_made, made.signature) == (True, True, f"{model}.sig")
    (model.parent / "README.md").write_text("may change")
    assert verify(model, public_key=keys[1]).ok
    other = verify(model, public_key=make_keys(tmp_path, "other")[1])
    assert not other.ok
    assert other.signature_fault == "it was made with another key"
    weights = model.with_name("m.onnx.data")
    flip(weights if weights.exists() else model, 2000)
    changed = verify(model, public_key=keys[1])
    assert not changed.ok
    assert changed.signature_fault == "the model, or its external data, is not what was signed"


def test_a_forged_digest_does_not_pass(model: Path, keys: Keys) -> None:
    verify(model, sign=keys[0])
    changed = io.load(model)
    changed.doc_string = "forged"
    io.save(changed, model)
    assert verify(model).ok  # onnxtool wrote it, so the digest fits
    assert not verify(model, public_key=keys[1]).ok


def test_data_hidden_in_a_git_folder_is_signed_too(tmp_path: Path, digits_onnx: Path, keys: Keys) -> None:
    # The package leaves out .git by itself, wherever the model refers to it.
    folder = tmp_path / "model"
    (folder / ".git").mkdir(parents=True)
    io.save(io.load(digits_onnx), folder / "m.onnx", external=True)
    proto = io.read_proto(folder / "m.onnx")
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = ".git/w" if entry.key == "location" else entry.value
    (folder / "m.onnx.data").rename(folder / ".git" / "w")
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    assert verify(folder / "m.onnx", sign=keys[0]).signature_fault is not None  # changed behind onnxtool's back
    del proto.metadata_props[:]
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    assert verify(folder / "m.onnx", sign=keys[0]).ok
    flip(folder / ".git" / "w", 2000)
    assert not verify(folder / "m.onnx", public_key=keys[1]).ok


def test_the_packages_own_command_line_agrees(model: Path, keys: Keys) -> None:
    verify(model, sign=keys[0])
    subject = [str(model.parent), "--ignore_unsigned_files"] if model.with_name("m.onnx.data").exists() else [model]
    line = [sys.executable, "-m", "model_signing", "verify", "key", *subject]
    line += ["--signature", f"{model}.sig", "--public_key", keys[1]]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    flip(model, 1000)
    assert subprocess.run(line, capture_output=True, check=False).returncode != 0


def test_a_locked_key_takes_its_password_from_the_environment(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = make_keys(tmp_path, "locked", b"secret")
    with pytest.raises(InputError, match=PASSWORD):
        verify(model, sign=private)
    monkeypatch.setenv(PASSWORD, "secret")
    assert verify(model, sign=private, public_key=public).ok


@pytest.mark.parametrize(
    "content",
    ["", "no json", "[]", "{}", '{"verificationMaterial": {}}', "[" * 100_000, '{"verificationMaterial": []}', "\xff"],
)
def test_rubbish_is_no_signature(model: Path, keys: Keys, content: str) -> None:
    bundle = model.with_name("rubbish.sig")
    bundle.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match="no signature"):
        verify(model, public_key=keys[1], signature=bundle)


def test_a_signature_of_another_payload_does_not_pass(model: Path, keys: Keys) -> None:
    verify(model, sign=keys[0])
    bundle = Path(f"{model}.sig")
    content = json.loads(bundle.read_text())
    content["dsseEnvelope"]["payload"] = content["dsseEnvelope"]["payload"][:-8] + "AAAAAAA="
    bundle.write_text(json.dumps(content))
    assert verify(model, public_key=keys[1]).signature_fault == "it was not made with the private half of this key"


@pytest.mark.parametrize("which", ["sign", "public_key"])
def test_no_key_is_an_error_of_one_line(model: Path, tmp_path: Path, which: str) -> None:
    (tmp_path / "rubbish.pem").write_text("rubbish")
    for name in ("rubbish.pem", "missing.pem"):
        with pytest.raises(InputError, match="elliptic-curve key"):
            verify(model, **{which: tmp_path / name})
    with pytest.raises(UsageError):
        verify(model, signature=tmp_path / "x.sig")


def test_the_command_signs_and_verifies(onnxtool: Tool, digits_onnx: Path, tmp_path: Path, keys: Keys) -> None:
    path = tmp_path / "plain.onnx"
    shutil.copy(digits_onnx, path)  # without a digest of onnxtool
    signature = tmp_path / "s.json"
    done = onnxtool("verify", path, "--sign", keys[0], "--signature", signature)
    assert done.returncode == 0, done.stderr
    assert "signed" in done.stdout
    done = onnxtool("verify", path, "--public-key", keys[1], "--signature", signature)
    assert done.returncode == 0, done.stderr
    assert "the signature is good" in " ".join(done.stdout.split())
    flip(path, 1000)
    done = onnxtool("verify", path, "--public-key", keys[1], "--signature", signature, "--json")
    assert done.returncode in (1, 3)
    missing = onnxtool("verify", path, "--public-key", keys[1])
    assert (missing.returncode, len(missing.stderr.splitlines())) == (3, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.pem", "mine.pub", "plain.onnx", "s.json"]


def test_without_the_package_the_extra_is_named(digits_onnx: Path, keys: Keys) -> None:
    script = "import sys; sys.modules['model_signing'] = None; from onnxtool.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "verify", digits_onnx, "--sign", keys[0]],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 4
    assert 'pip install ".[signing]"' in done.stderr
