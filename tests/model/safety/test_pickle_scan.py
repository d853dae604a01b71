"""Imports read off pickles that are never run."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxtool.errors import InputError
from onnxtool.model.io import read_proto
from onnxtool.model.safety.pickle_scan import pickled_imports

RAN: list[str] = []


def run(name: str) -> None:
    """Would be called by unpickling."""
    RAN.append(name)


class Payload:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return run, ("ran",)


NAME = f"{run.__module__}.run"


@pytest.mark.parametrize("protocol", range(6))
def test_names_the_import_of_every_protocol(protocol: int) -> None:
    assert pickled_imports(pickle.dumps({"a": [Payload(), "b.c"]}, protocol)) == [NAME]
    assert not RAN


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, bz2.compress, lzma.compress])
def test_looks_into_compressed_pickles(pack: Callable[[bytes], bytes]) -> None:
    assert pickled_imports(pack(pickle.dumps(Payload()))) == [NAME]


def test_looks_into_archives_and_object_arrays() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps(OrderedDict(a=1), 2))
        archive.writestr("m/data/0", b"\0" * 100)
    assert pickled_imports(buffer.getvalue()) == ["collections.OrderedDict"]
    objects = np.empty(1, object)
    objects[0] = Payload()
    buffer = io.BytesIO()
    np.savez(buffer, x=objects)
    assert NAME in (pickled_imports(buffer.getvalue()) or [])


def test_reads_several_pickles_in_a_row_and_one_that_is_cut_off() -> None:
    several = b"".join(pickle.dumps(o, 2) for o in (1, "x", OrderedDict(), Payload()))
    assert pickled_imports(several) == ["collections.OrderedDict", NAME]
    assert pickled_imports(pickle.dumps([Payload(), b"x" * 1000], 4)[:-500]) == [NAME]


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x80", b"PK\x03\x04broken", b"\x1f\x8bbroken", b"\x08\x0a\x12\x03abc", b"\x93NUMPY"]
)
def test_what_is_no_pickle_is_none(data: bytes) -> None:
    assert pickled_imports(data) is None


def test_a_pickle_called_onnx_is_named_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(InputError, match=r"this holds a pickle.*It would import test_pickle_scan\.run|.*\.run"):
        read_proto(tmp_path / "m.onnx")
    assert not RAN


def other(name: str) -> None:
    """Another function of this module."""


class OtherPayload:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return other, ("ran",)


@pytest.mark.parametrize("protocol", [4, 5])
def test_names_that_a_pickle_repeats_by_number_are_read(protocol: int) -> None:
    """The module is written once, and taken from the memo the second time."""
    names = pickled_imports(pickle.dumps([Payload(), OtherPayload()], protocol))
    assert names == [NAME, f"{other.__module__}.other"]


def test_ten_pickles_in_a_row_are_looked_at() -> None:
    rows = [pickle.dumps(i) for i in range(9)]
    assert pickled_imports(b"".join([*rows, pickle.dumps(Payload())])) == [NAME]
    assert pickled_imports(b"".join([*rows, rows[0], pickle.dumps(Payload())])) == []


def test_a_number_of_the_memo_that_is_not_there_is_no_name() -> None:
    assert pickled_imports(b"\x80\x04h\x07\x93.") in ([], [""], None)


def test_texts_of_the_data_that_a_name_is_taken_from_are_read() -> None:
    assert pickled_imports(pickle.dumps([run.__module__, run.__qualname__, Payload()], 4)) == [NAME]
    assert pickled_imports(b"\x80\x04h\x00\x93.") == [""]
