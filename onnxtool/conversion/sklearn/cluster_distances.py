"""Clusters as a step of a pipeline, where skl2onnx knows them as a last one alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin


class ClusterDistances(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Distances of rows from the centres of fitted clusters, `centres_` [clusters, features]."""

    def __init__(self, clusters: Any) -> None:
        self.clusters = clusters
        name = "subcluster_centers_" if hasattr(clusters, "subcluster_centers_") else "cluster_centers_"
        self.centres_ = np.asarray(getattr(clusters, name), np.float64)
        self.n_features_in_ = int(clusters.n_features_in_)

    def fit(self, rows: Any, labels: Any = None) -> ClusterDistances:  # noqa: ARG002
        """Nothing: the clusters are fitted."""
        return self

    def transform(self, rows: Any) -> np.ndarray:
        """[rows, clusters]."""
        return np.asarray(self.clusters.transform(rows))
