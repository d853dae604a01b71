"""Keras models: .keras, .h5 and what the keras package loads."""
