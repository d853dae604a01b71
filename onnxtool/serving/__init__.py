"""`serve`: models over HTTP in the Open Inference Protocol V2, and bundles in the form of OpenAI's API."""
