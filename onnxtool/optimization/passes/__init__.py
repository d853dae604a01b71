"""The rewrite passes, in a folder for each kind: cleanup, layout, fusion, ort_fusion."""
