"""Runs the scoring script as Azure does, and holds its answers against the recorded outputs.

python smoke_test.py
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import recorded

FOLDER = Path(__file__).parent
os.environ["AZUREML_MODEL_DIR"] = str(FOLDER / "model")
sys.path.insert(0, str(FOLDER / "src"))

import score  # noqa: E402


def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    score.init()
    outputs = score.run(json.dumps({"inputs": {n: a.tolist() for n, a in inputs.items()}}))["outputs"]
    types = {o.name: score.dtype_of(o) for o in score.session.get_outputs()}
    types = {name: object if kind == "string" else kind for name, kind in types.items()}
    return {n: np.array(json.loads(json.dumps(v)), dtype=types[n]) for n, v in outputs.items()}


if __name__ == "__main__":
    sys.exit(recorded.compare(run))
