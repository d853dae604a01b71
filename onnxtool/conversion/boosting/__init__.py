"""XGBoost, LightGBM and CatBoost models."""
