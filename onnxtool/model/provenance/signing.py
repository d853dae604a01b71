"""Signatures by the `model-signing` package of the OpenSSF, with a key on this machine; no network is asked.

The bundle that is written is the one of the package's own command line: `model_signing verify key MODEL ...` reads it.
A model with weights inside is signed as that one file, which may be renamed. A model with external data is signed as a
folder of which only the model and its data files count, so that these keep their names.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, OnnxToolError, needs_extra
from onnxtool.model.io.atomic import replace, settled, staged, sync

PASSWORD = "ONNXTOOL_KEY_PASSWORD"  # the environment variable for a key that is encrypted
_LARGEST_BUNDLE = 16_000_000


def sign(model: Path, external: Sequence[Path], key: Path, signature: Path) -> None:
    """Sign a model and its external data; the bundle appears at `signature` as a whole or not at all.

    Args:
        model: the .onnx file.
        external: its external data files, in its folder or below.
        key: a private key in PEM: elliptic curve, P-256, P-384 or P-521.
        signature: where the bundle goes.

    Raises:
        MissingExtraError: the package is not installed.
        InputError: no such key.
        OSError: the bundle cannot be written.
    """
    signing = _package(model).signing
    config = signing.Config().set_hashing_config(_files(model, external))
    password = os.environ.get(PASSWORD)
    try:
        config.use_elliptic_key_signer(private_key=key, password=None if password is None else password.encode())
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _no_key(key, "private", error) from error
    signature = settled(signature)
    with staged(signature) as temporary:
        config.sign(_subject(model, external), temporary)
        sync(temporary)
        replace(temporary, signature)


def verify_signature(model: Path, external: Sequence[Path], key: Path, signature: Path) -> str | None:
    """Hold a model and its external data against a signature.

    Args:
        model: the .onnx file.
        external: its external data files.
        key: the public key in PEM.
        signature: a bundle of `sign` or of model-signing's own command line.

    Returns:
        Why the signature is not good for this model; None when it is.

    Raises:
        MissingExtraError: the package is not installed.
        InputError: no such key, or what is there is no signature.
    """
    verifying = _package(model).verifying
    config = verifying.Config().set_hashing_config(_files(model, external))
    try:
        config.use_elliptic_key_verifier(public_key=key)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _no_key(key, "public", error) from error
    _look_like_a_bundle(signature)
    from cryptography.exceptions import InvalidSignature

    try:
        with redirect_stdout(io.StringIO()):  # the package prints warnings about older bundles
            config.verify(_subject(model, external), signature)
    except InvalidSignature:
        return "it was not made with the private half of this key"
    except ValueError as error:
        if str(error).startswith("Key mismatch"):
            return "it was made with another key"
        if str(error).startswith("Signature mismatch"):
            return "the model, or its external data, is not what was signed"
        raise InputError(f"{signature}: no signature of a model ({_first_line(error)}).") from error
    except OnnxToolError:
        raise
    except Exception as error:  # whatever a stranger's JSON makes of the package
        raise InputError(f"{signature}: no signature of a model ({_first_line(error)}).") from error
    return None


def _files(model: Path, external: Sequence[Path]) -> Any:
    """How the package hashes: these files and no others, whatever they are called."""
    from model_signing import hashing

    class SignedFiles(hashing.Config):  # type: ignore[misc]
        def hash(self, model_path: Path, *, files_to_hash: object = None) -> Any:  # noqa: ARG002
            return super().hash(model_path, files_to_hash=[model, *external])

        def add_ignored_paths(self, **_: object) -> None:
            """A signature does not say what is left out."""

    return SignedFiles().set_ignored_paths(paths=[], ignore_git_paths=False).set_allow_symlinks(True)


def _subject(model: Path, external: Sequence[Path]) -> Path:
    return model.parent if external else model


def _package(model: Path) -> Any:
    with needs_extra(str(model), "model-signing", "signing"):
        import model_signing
    return model_signing


def _no_key(key: Path, half: str, error: Exception) -> InputError:
    encrypted = f" Its password is read from {PASSWORD}." if "assword" in str(error) else ""
    return InputError(f"{key}: no {half} elliptic-curve key in PEM ({_first_line(error)}).{encrypted}")


def _look_like_a_bundle(signature: Path) -> None:
    try:
        if not signature.is_file():
            raise InputError(f"{signature}: no such file. onnxtool verify MODEL --sign KEY.pem makes one.")
        if signature.stat().st_size > _LARGEST_BUNDLE:
            raise InputError(f"{signature}: too large for a signature.")
        json.loads(signature.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{signature}: no signature of a model (no JSON).") from error
    except OSError as error:
        raise InputError(f"{signature}: cannot be read ({error.strerror or error}).") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
