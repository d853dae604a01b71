"""Which files the user's code reads."""

from __future__ import annotations

import sys
from pathlib import Path

from onnxtool.workflow.user_files import is_users, recorded, static_reads, users_files


def names(paths: set[Path]) -> set[str]:
    return {p.name for p in paths}


def test_follows_imports_and_names_of_files(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "inner").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "inner" / "__init__.py").write_text("from ..base import X\n")
    (tmp_path / "pkg" / "base.py").write_text("X = open('weights.bin')\n")
    (tmp_path / "weights.bin").write_bytes(b"1")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "far.py").write_text("")
    start = tmp_path / "net.py"
    start.write_text("import os\ndef make():\n    from pkg import inner\n    import far\n")
    found = static_reads(start, [tmp_path / "other"])
    assert names(found) == {"net.py", "__init__.py", "base.py", "weights.bin", "far.py"}
    assert len(found) == 6


def test_code_that_does_not_parse_is_itself_all_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def (:\n")
    assert names(static_reads(tmp_path / "net.py", [])) == {"net.py"}


def test_sees_what_is_opened_and_imported_and_forgets_the_modules(tmp_path: Path) -> None:
    (tmp_path / "part_of_a_test.py").write_text("VALUE = 1\n")
    (tmp_path / "w1.bin").write_bytes(b"1")
    (tmp_path / "out.bin").write_bytes(b"")
    sys.path.insert(0, str(tmp_path))
    try:
        with recorded() as seen:
            import part_of_a_test  # type: ignore[import-not-found]

            assert part_of_a_test.VALUE == 1
            open(str(tmp_path / "w") + "1.bin", "rb").close()
            open(tmp_path / "out.bin", "wb").close()
    finally:
        sys.path.remove(str(tmp_path))
    assert names(set(users_files(seen, []))) == {"part_of_a_test.py", "w1.bin"}
    assert users_files(seen, [tmp_path]) == []
    assert "part_of_a_test" not in sys.modules


def test_the_installation_is_not_the_users(tmp_path: Path) -> None:
    import numpy

    assert not is_users(Path(numpy.__file__))
    assert not is_users(Path(json_file()))
    assert is_users(tmp_path / "net.py")


def json_file() -> str:
    import json

    return json.__file__
