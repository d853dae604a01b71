"""Loads the model of this folder with MLflow and holds its answers against the recorded outputs.

python smoke_test.py
"""

import sys
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import recorded

FOLDER = Path(__file__).parent


def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(mlflow.pyfunc.load_model(str(FOLDER)).get_raw_model().predict(inputs))


if __name__ == "__main__":
    sys.exit(recorded.compare(run))
