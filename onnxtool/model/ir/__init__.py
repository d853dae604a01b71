"""Questions asked of an onnx_ir graph, and small edits of it, that several packages share."""
