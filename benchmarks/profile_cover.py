"""How much of a model `bench --profile` leads back to the nodes of its file.

    python benchmarks/profile_cover.py MODEL...

For each model: nodes of the file (constants left out) and how many of them a node of the runtime is said to do the work
of; how many are claimed twice; the share of the time in nodes with originals, and in nodes whose bytes are known; the
floating-point operations of one run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx

from onnxtool.model.domains import input_domains
from onnxtool.model.io import load
from onnxtool.runtime.probes import runnable_feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.fused_node_names import label
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.profile import profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    for path in parser.parse_args().models:
        runner = OnnxRunner.open(path)
        feeds = runnable_feeds(runner, runner.inputs, 0, input_domains(load(path)))[0]
        found = profile(path, feeds, SessionOptions(threads=1), runs=5)
        nodes = onnx.load(path, load_external_data=False).graph.node
        file = {label(n) for n in nodes if n.op_type != "Constant"}
        originals = [name for n in found.nodes for name in n.originals]
        led_back = sum(n.share for n in found.nodes if n.originals)
        measured = sum(n.share for n in found.nodes if n.bytes is not None)
        flops = sum(n.flops or 0 for n in found.nodes)
        print(
            f"{path}: {len(file & set(originals))} of {len(file)} nodes, {len(originals) - len(set(originals))} twice; "
            f"{led_back:.1%} of the time led back, bytes known for {measured:.1%}; {flops / 1e6:.1f} MFLOP"
        )


if __name__ == "__main__":
    main()
