#!/bin/sh
# PyTorch to int8 in four commands: convert, check, optimize, quantize. Needs, in this clone: pip install ".[pytorch]"
# Usage: examples/pytorch_to_int8.sh [FOLDER FOR THE RESULTS]
set -eu
models=$(dirname "$0")/../fixtures
out=${1:-digits-pytorch}
mkdir -p "$out"

# A state_dict holds weights only; --factory names the function that builds the module.
onnxtool convert "$models/digits_cnn.pt" --factory "$models/digits_cnn.py:make" \
    --input-shape image:batch,1,8,8 --output-names logits -o "$out/digits.onnx"
onnxtool check "$out/digits.onnx"
onnxtool optimize "$out/digits.onnx" -o "$out/digits.opt.onnx"
onnxtool quantize "$out/digits.opt.onnx" -o "$out/digits.int8.onnx" --mode static \
    --data "$models/calib.npz" --eval "$models/eval.npz" --labels label
