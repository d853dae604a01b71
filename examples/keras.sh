#!/bin/sh
# A Keras model to an optimized ONNX file, compared with the original. Needs, in this clone: pip install ".[keras]"
# Usage: examples/keras.sh [FOLDER FOR THE RESULTS]
set -eu
models=$(dirname "$0")/../fixtures
out=${1:-digits-keras}
mkdir -p "$out"

onnxtool convert "$models/digits_keras.keras" -o "$out/digits.onnx"
onnxtool optimize "$out/digits.onnx" -o "$out/digits.opt.onnx"
# The original is a model like any other: Keras on the left, the optimized ONNX file on the right, real images.
onnxtool compare "$models/digits_keras.keras" "$out/digits.opt.onnx" --data "$models/eval_keras.npz"
