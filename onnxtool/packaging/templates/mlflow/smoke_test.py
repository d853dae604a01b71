"""Loads the model of this folder with MLflow and holds its answers against the recorded outputs.

python smoke_test.py
"""

import sys
from pathlib import Path

import mlflow.onnx
import numpy as np
import onnxruntime as ort
import recorded

FOLDER = Path(__file__).parent


def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    model = mlflow.onnx.load_model(str(FOLDER))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


if __name__ == "__main__":
    sys.exit(recorded.compare(run))
