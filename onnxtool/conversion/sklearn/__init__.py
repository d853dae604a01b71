"""scikit-learn estimators and pipelines."""
