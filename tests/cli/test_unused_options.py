"""Options that would change nothing are refused, by what their declarations say."""

from __future__ import annotations

import pytest

from onnxtool.cli.commands import quantize as unused
from onnxtool.errors import UsageError
from onnxtool.options.option import options_of
from onnxtool.options.quantize import QuantizeCommand

DECLARED = options_of(QuantizeCommand)


def test_an_option_of_other_modes_is_refused() -> None:
    unused.reject_other_modes("int4", {"block_size": "--block-size", "data": "--data"}, DECLARED)
    with pytest.raises(UsageError, match="--block-size does nothing with --mode auto: it goes with int8 or int4"):
        unused.reject_other_modes("auto", {"block_size": "--block-size"}, DECLARED)
    with pytest.raises(UsageError, match="it goes with auto, static, dynamic"):
        unused.reject_other_modes("float16", {"smooth": "--smooth"}, DECLARED)


def test_an_option_without_the_one_it_needs_is_refused() -> None:
    unused.reject_alone({"images": "--image", "eval_data": "--eval"}, DECLARED)
    with pytest.raises(UsageError, match="--image goes with --data or --eval"):
        unused.reject_alone({"images": "--image"}, DECLARED)
    with pytest.raises(UsageError, match="--state goes with --steps"):
        unused.reject_alone({"states": "--state", "data": "--data"}, DECLARED)


def test_bundles_and_models_have_options_of_their_own() -> None:
    everywhere = {"model": "MODEL", "output": "-o", "json": "--json", "html": "--html", "threads": "--threads"}
    unused.reject_for_bundle(everywhere | {"max_size": "--max-size"}, DECLARED, bundle=True)
    unused.reject_for_bundle(everywhere | {"data": "--data"}, DECLARED, bundle=False)
    with pytest.raises(UsageError, match="--data does nothing for a bundle"):
        unused.reject_for_bundle({"data": "--data"}, DECLARED, bundle=True)
    with pytest.raises(UsageError, match="--max-size goes with a bundle"):
        unused.reject_for_bundle({"max_size": "--max-size"}, DECLARED, bundle=False)
