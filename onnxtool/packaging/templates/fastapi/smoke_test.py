"""Sends the recorded inputs to the running endpoint and holds its answers against the recorded outputs.

python smoke_test.py [http://127.0.0.1:8000]
"""

import json
import sys
import urllib.request
from functools import partial

import numpy as np
import recorded

NAME = "model"
TYPES = {"f2": "FP16", "f4": "FP32", "f8": "FP64", "b1": "BOOL"} | {
    f"{k}{n // 8}": f"{'U' if k == 'u' else ''}INT{n}" for k in "iu" for n in (8, 16, 32, 64)
}


def tensor(name: str, array: np.ndarray) -> dict[str, object]:
    datatype = "BYTES" if array.dtype.kind in "OU" else TYPES[array.dtype.str[1:]]
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.reshape(-1).tolist()}


def ask(url: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    body = json.dumps({"inputs": [tensor(n, a) for n, a in inputs.items()]}).encode()
    request = urllib.request.Request(f"{url}/v2/models/{NAME}/infer", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        outputs = json.load(response)["outputs"]
    return {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in outputs}


if __name__ == "__main__":
    url = (sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000").rstrip("/")
    sys.exit(recorded.compare(partial(ask, url)))
