"""TensorFlow models: SavedModel, frozen graphs, .tflite."""
