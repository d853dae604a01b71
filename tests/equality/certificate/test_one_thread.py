"""A certificate's products take one thread of numpy's library, and what others use stays as it was."""

import pytest

from onnxtool.equality.certificate import one_thread as module
from onnxtool.equality.certificate.one_thread import one_thread


def test_one_thread_inside_and_the_same_as_before_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [5]
    monkeypatch.setattr(module, "_openblas", lambda: (lambda: threads[0], lambda n: threads.__setitem__(0, n)))
    with pytest.raises(ValueError, match="inside"), one_thread():
        assert threads == [1]
        raise ValueError("inside")
    assert threads == [5]


def test_the_library_of_numpy_is_asked() -> None:
    found = module._openblas()
    if found is None:
        pytest.skip("numpy was built with another library")
    count, limit = found
    before = count()
    limit(3)
    with one_thread():
        assert count() == 1
    assert count() == 3
    limit(before)
