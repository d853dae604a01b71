"""Sends the recorded prompts to the running endpoint and holds its texts against the recorded ones.

python smoke_test.py [http://127.0.0.1:8000]
"""

import json
import sys
import urllib.request
from pathlib import Path


def main() -> int:
    url = (sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000").rstrip("/")
    for case in json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8")):
        body = json.dumps({"prompt": case["prompt"], "max_tokens": case["max_tokens"], "temperature": 0}).encode()
        request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as response:
            text = json.load(response)["choices"][0]["text"]
        if text != case["text"]:
            print(f"{case['prompt']!r}: {text!r}, not {case['text']!r}")
            return 1
        print(f"{case['prompt']!r}: equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
