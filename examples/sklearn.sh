#!/bin/sh
# A scikit-learn pipeline to ONNX, then labels and probabilities from it. Needs, in this clone: pip install ".[sklearn]"
# Usage: examples/sklearn.sh [FOLDER FOR THE RESULTS]
set -eu
models=$(dirname "$0")/../fixtures
out=${1:-digits-sklearn}
mkdir -p "$out"

# A .skops file needs no trust; a .joblib or .pkl file can run code and needs --trust.
onnxtool convert "$models/digits_forest.skops" --input-names pixels -o "$out/forest.onnx"
onnxtool inspect "$out/forest.onnx"
onnxtool run "$out/forest.onnx" --data "$models/eval_forest.npz" -o "$out/predictions.npz"
