#!/bin/sh
# A CI step: the exit code decides, JSON explains. Fails (exit 1) when the model is unsound or the candidate differs.
# Usage: examples/ci_step.sh REFERENCE.onnx CANDIDATE.onnx [FOLDER FOR THE REPORTS]
set -u
reference=$1 candidate=$2 reports=${3:-reports}
mkdir -p "$reports"

onnxtool check "$candidate" --quiet --json "$reports/check.json"
case $? in
    0) echo "check: sound" ;;
    1) echo "check: not sound, see $reports/check.json" >&2; exit 1 ;;
    3) echo "check: not a readable ONNX file" >&2; exit 1 ;;
    *) echo "check: could not be done" >&2; exit 2 ;;
esac

if onnxtool compare "$reference" "$candidate" --quiet --json "$reports/compare.json"; then
    echo "compare: equal"
else
    # Any JSON tool will do; jq is more usual where it is installed.
    python3 - "$reports/compare.json" <<'PYTHON' >&2
import json, sys
for output in json.load(open(sys.argv[1]))["outputs"]:
    if not output["ok"]:
        print(f"compare: {output['name']} differs by {output['max_abs']} at {output['worst_index']}")
PYTHON
    exit 1
fi
