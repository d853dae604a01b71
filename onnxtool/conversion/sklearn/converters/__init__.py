"""Converters of scikit-learn estimators that skl2onnx lacks or has wrong."""
