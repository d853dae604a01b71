"""Matrix products: MatMul with a bias, transposes in front of them."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.model.operators.value_facts import rank_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.operator_chains import permutation


class FuseMatMulAdd(NodeRewrite):
    """MatMul(x, W) + b -> Gemm(x, W, b) for two matrices and a row."""

    name = "fuse-matmul-add"
    level = Level.EXTENDED

    _TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)
    operators = ("Add",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Only for rank 2: more dims would need two Reshapes around the Gemm."""
        for index, value in enumerate(node.inputs):
            product, bias = producer(value, "MatMul"), node.inputs[1 - index]
            if product is None or value is None or sole_use(value) is not node or bias is None:
                continue
            if self._fits(product, bias, value) and context.is_constant(bias):
                context.replace_op(node, "Gemm", [*product.inputs, bias])
                return 1
        return 0

    def _fits(self, product: ir.Node, bias: ir.Value, result: ir.Value) -> bool:
        if any(rank_of(v) != 2 for v in product.inputs) or result.dtype not in self._TYPES:
            return False
        sizes, columns = sizes_of(bias), sizes_of(result)
        if sizes is None or columns is None or len(sizes) > 2:
            return False
        # Gemm broadcasts its third input only towards the result: it must not have more rows.
        return (len(sizes) < 2 or sizes[0] == 1) and (not sizes or sizes[-1] in (1, columns[-1]))


class FuseTransposeGemm(NodeRewrite):
    """Gemm(Transpose(a), b) -> Gemm(a, b, transA=1); b likewise."""

    # Not bit-exact: the runtime's kernel for a transposed operand adds up in another order.
    name = "fuse-transpose-gemm"
    level = Level.EXTENDED
    operators = ("Gemm",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """A Transpose without perm reverses the dims, which for a matrix is the same."""
        flags = [attribute(node, "transA", 0), attribute(node, "transB", 0)]
        inputs = list(node.inputs)
        for index in (0, 1):
            before = producer(inputs[index], "Transpose")
            if before is not None and permutation(before) == [1, 0]:
                inputs[index], flags[index] = before.inputs[0], 1 - flags[index]
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            kept = [a for name, a in node.attributes.items() if name not in ("transA", "transB")]
            turned = [ir.AttrInt64(name, f) for name, f in zip(("transA", "transB"), flags, strict=True) if f]
            context.replace_op(node, "Gemm", inputs, [*kept, *turned])
            return 1
        return 0
