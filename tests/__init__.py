"""The tests mirror the package: `onnxtool/a/b.py` is tested by `tests/a/test_b.py`.

Helpers are imported: `from tests.hostile.cases import Case`.
"""
