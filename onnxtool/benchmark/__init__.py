"""Latency, throughput and memory of models, measured side by side."""
