"""What passes work with: finding nodes, reading constants, editing the graph without losing names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import add_tensor, as_tensor
from onnxtool.model.ir.queries import QUANTIZATION, constant_array, distinct, expanded, is_op, splat, walk
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.model.operators.value_facts import Sizes, set_sizes

_SPLAT_DTYPES = "biuf"
_UNROUNDED = "onnxtool.unrounded"  # of a constant, the numbers that it was rounded from
_ROW = 16_384  # bytes; a bias that happens to be uniform is not worth a node, as long as there is room
_SMALL = 256  # bytes; a constant of this size costs about as much as the node that computes it


class PassContext:
    """Shared by the passes of one pipeline run over one model.

    Args:
        model: what is being optimized.
        max_folded_bytes: a folded tensor may be larger than what it replaces by this much; None lets all folded
            tensors together grow the file by `growth_budget` bytes.
        growth_budget: bytes by which folding may grow the file in total.
        source_bytes: size of the file before any pass, 0 when it does not matter.
        exact: results must stay equal to the last bit, so a computed weight does not become a constant where the
            runtime then takes another kernel.

    Attributes:
        refused: nodes that constant folding has tried in vain, so that it need not try again; with a number, it may
            once more bytes than that become free with the node.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        max_folded_bytes: int | None = None,
        growth_budget: int = 0,
        source_bytes: int = 0,
        exact: bool = False,
    ) -> None:
        self.model = model
        self.exact = exact
        self.max_folded_bytes = max_folded_bytes
        self.growth_budget = growth_budget
        self.source_bytes = source_bytes
        self.refused: dict[ir.Node, int | None] = {}
        self._names: set[str] = set()
        self.rename_duplicates()

    @property
    def opset(self) -> int:
        """Version of the standard operator set that the model imports (0: none)."""
        return self.model.opset_imports.get("", self.model.opset_imports.get("ai.onnx", 0))

    # -- finding -------------------------------------------------------------------------------------------

    def nodes(self, model: ir.Model, *op_types: str, domain: str = "") -> list[ir.Node]:
        """The nodes of the given operators, in the main graph and all subgraphs, in topological order.

        The list is a snapshot: nodes that a rewrite has removed since then have `graph` None.
        """
        domains = STANDARD if domain == "" else (domain,)
        wanted = frozenset(op_types)
        return [n for n in walk(model.graph) if (not wanted or n.op_type in wanted) and n.domain in domains]

    def array(self, value: ir.Value | None, *, limit: int | None = None) -> np.ndarray | None:
        """The array behind a value that is constant for certain; None otherwise.

        Initializers that a caller may override (graph inputs with a default) are not constants. A ConstantOfShape
        with a constant shape counts as the constant that it makes, and so does an Expand of an initializer.

        Args:
            value: what to read.
            limit: larger constants (in elements) give None, without being read.
        """
        if value is None:
            return None
        if limit is not None and value.const_value is not None and value.const_value.size > limit:
            return None
        found = constant_array(value)
        if found is None and (node := value.producer()) is not None and self.is_constant(value):
            found = splat(node) if is_op(node, "ConstantOfShape") else expanded(node)
        if found is None or (limit is not None and found.size > limit):
            return None
        return found

    def is_constant(self, value: ir.Value | None) -> bool:
        """True when `array` would give one; nothing is read."""
        while value is not None and value.const_value is None:
            node = value.producer()
            if node is None:
                return False
            if is_op(node, "Expand"):
                return all(v is not None and v.const_value is not None and not v.is_graph_input() for v in node.inputs)
            if not is_op(node, "ConstantOfShape"):
                return is_op(node, "Constant")
            value = node.inputs[0]
        return value is not None and not value.is_graph_input()

    def changes_kernel(self, value: ir.Value) -> bool:
        """Whether results may round differently once this computed value is a constant, and must not."""
        if not self.exact or (value.dtype is not None and not value.dtype.is_floating_point()):
            return False
        return any(u.node.domain not in STANDARD or u.idx in operator_of(u.node).packed for u in value.uses())

    # -- editing -------------------------------------------------------------------------------------------

    def unique(self, base: str) -> str:
        """A value name that the model does not use yet."""
        name, count = base, 1
        while name in self._names or not name:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def rename_duplicates(self) -> None:
        """Give every value of all graphs a name of its own, so that nodes can move between graphs.

        Two branches of an If may use the same names, and some writers leave values without one.
        """
        self._names = {v.name for v in (*self.model.graph.inputs, *self.model.graph.outputs) if v.name}
        kept = {*self.model.graph.inputs, *self.model.graph.outputs}
        for graph in self.model.graphs():
            values = [*graph.inputs, *graph.initializers.values()]
            values += [v for node in graph for v in node.outputs]
            for value in values:
                if value in kept or value.name == "":
                    continue
                if value.name is None or value.name in self._names:
                    if not value.uses() and not value.is_graph_output() and value.name is None:
                        continue
                    value.name = self.unique(value.name or "value")
                self._names.add(value.name)
                kept.add(value)

    def initializer(self, array: np.ndarray, base: str, *, keep_name: bool = False) -> ir.Value:
        """Store an array in the main graph, where every subgraph sees it too.

        Args:
            array: the value.
            base: name to derive a unique one from.
            keep_name: `base` itself is free (its value was renamed) and is to be used as it is.
        """
        return add_tensor(self.model.graph, as_tensor(array, base if keep_name else self.unique(base)))

    def constant(self, array: np.ndarray, base: str, before: ir.Node, *, keep_name: bool = False) -> ir.Value:
        """Store an array; a large one of equal elements becomes a ConstantOfShape, which takes no space.

        A view that repeats a few numbers along some dims (`np.broadcast_to`) becomes an Expand of these.

        Args:
            array: the value.
            base: name to derive a unique one from.
            before: the node that will read it.
            keep_name: as for `initializer`.
        """
        row = array.ndim == 1 and array.nbytes <= _ROW and self.may_grow(0, array.nbytes)
        if row or self.fits_inline(array):
            return self.initializer(array, base, keep_name=keep_name)
        shape = self.initializer(np.array(array.shape, np.int64), f"{base}_shape")
        if self._is_splat(array):
            fill = ir.AttrTensor("value", ir.tensor(array.reshape(-1)[:1]))
            value = self.insert(before, "ConstantOfShape", [shape], [fill], base=base)
        else:
            value = self.insert(before, "Expand", [self.initializer(distinct(array), f"{base}_rows"), shape], base=base)
        value.dtype, value.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
        return value

    def rounded(self, array: np.ndarray, exact: np.ndarray, base: str, before: ir.Node) -> ir.Value:
        """Store an array, and remember the numbers in float64 that it was rounded from, which `unrounded` gives again.

        Of several maps in a row, each taken into the numbers in turn, the sum is then rounded once: where it is small
        beside its terms, rounding each time would leave few digits of it.

        Args:
            exact: of the same shape.
            array, base, before: as of `constant`.
        """
        value = self.constant(array, base, before)
        value.meta[_UNROUNDED] = exact
        return value

    def unrounded(self, value: ir.Value | None) -> np.ndarray | None:
        """As of `array`, in float64, and before rounding where a pass has worked the numbers out."""
        array = self.array(value)
        if value is None or array is None:
            return None
        return np.asarray(value.meta.get(_UNROUNDED, array), np.float64)

    def fits_inline(self, array: np.ndarray) -> bool:
        """Whether `constant` would store the array itself: it is small, or its elements differ."""
        if array.nbytes <= max(_SMALL, self.max_folded_bytes or 0):
            return True
        return not self._is_repeated(array) and not self._is_splat(array)

    def stored_bytes(self, array: np.ndarray) -> int:
        """Bytes that `constant` would take in the file."""
        if self.fits_inline(array):
            return array.nbytes
        return _SMALL // 2 + (0 if self._is_splat(array) else distinct(array).nbytes)

    def _is_repeated(self, array: np.ndarray) -> bool:
        """True for the weights of a convolution that are a view of one number for each channel."""
        return self.opset >= 9 and array.ndim > 2 and not any(array.strides[1:]) and array[:, 0].size < array.size

    def _is_splat(self, array: np.ndarray) -> bool:
        if self.opset < 9 or array.size < 2 or array.dtype.kind not in _SPLAT_DTYPES:
            return False
        if not any(array.strides):
            return True
        first = array[(0,) * array.ndim].tobytes()
        if first != array[(-1,) * array.ndim].tobytes():
            return False  # so for nearly all weights, which may be large
        flat = np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1)
        return bool((flat == np.frombuffer(first, np.uint8)).all())

    def may_grow(self, before: int, after: int) -> bool:
        """Whether a rewrite may turn `before` bytes of constants into `after`; takes the difference off the budget."""
        if not self.could_grow(before, after):
            return False
        growth = after - before
        if growth > _SMALL and self.max_folded_bytes is None:
            self.growth_budget -= growth
        return True

    def could_grow(self, before: int, after: int) -> bool:
        """`may_grow` without taking anything off the budget."""
        room = self.growth_budget if self.max_folded_bytes is None else self.max_folded_bytes
        return after - before <= max(_SMALL, room)

    def insert(
        self,
        before: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr] = (),
        *,
        base: str,
        domain: str = "",
    ) -> ir.Value:
        """Put a new one-output node in front of another and give its output."""
        name = self.unique(base)
        node = ir.Node(domain, op_type, inputs, attributes, outputs=[ir.Value(name=name)], name=name)
        assert before.graph is not None
        before.graph.insert_before(before, node)
        return node.outputs[0]

    def replace_op(
        self,
        node: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, ir.Attr] | Sequence[ir.Attr] = (),
        domain: str = "",
    ) -> None:
        """Turn a node into another that gives the same outputs, so that names of graph outputs stay by themselves."""
        kept = list(attributes.values()) if isinstance(attributes, Mapping) else list(attributes)
        node.op_type, node.domain = op_type, domain
        if domain and domain not in self.model.opset_imports:
            self.model.opset_imports[domain] = 1
        node.resize_inputs(len(inputs))
        for index, value in enumerate(inputs):
            if node.inputs[index] is not value:
                node.replace_input_with(index, value)
        node.attributes.clear()
        for item in kept:
            node.attributes.add(ir.Attr(item.name, item.type, item.value))

    def bypass(self, node: ir.Node, value: ir.Value) -> bool:
        """Let every use of a node's first output read `value`, and remove the node. A graph output keeps its name.

        Returns:
            False when that cannot be done, for one of the reasons of `replace_uses`: then nothing was changed.
        """
        if not self.replace_uses(node.outputs[0], value):
            return False
        if node.graph is not None and not any(o.uses() or o.is_graph_output() for o in node.outputs):
            node.graph.remove(node, safe=True)
        return True

    def replace_uses(self, old: ir.Value, new: ir.Value) -> bool:
        """Let every use of one of a node's several outputs read `new`; the caller removes the node (see `bypass`).

        Returns:
            False when that cannot be done (nothing was changed): `old` is a graph output, and `new` is an input,
            a constant, another output, or lives in another graph; or `new` is a constant, and where `old` is read
            the runtime would then take another kernel.
        """
        if old is new or (_initialized(new) and self.changes_kernel(old)):
            return False
        if old.is_graph_output():
            graph = old.graph
            producer = new.producer()
            if producer is None or producer.graph is not graph or new.is_graph_output() or graph is None:
                return False
            name = old.name
            old.name = self.unique(f"{name}_replaced")
            new.name = name
            new.type, new.shape = old.type or new.type, old.shape or new.shape
            new.doc_string = old.doc_string or new.doc_string
            new.metadata_props.update(old.metadata_props)
            if QUANTIZATION in old.meta:
                new.meta[QUANTIZATION] = old.meta[QUANTIZATION]
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        return True


def _initialized(value: ir.Value) -> bool:
    return value.const_value is not None or is_op(value.producer(), "Constant")


MICROSOFT = "com.microsoft"


def insert_fused(
    context: PassContext,
    before: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Sequence[ir.Attr],
    base: str,
    sizes: Sizes,
) -> ir.Value:
    """Put a float operator of the runtime's in front of a node and give its output, whose dims nobody else infers."""
    context.model.opset_imports.setdefault(MICROSOFT, 1)
    made = context.insert(before, op_type, inputs, attributes, base=base, domain=MICROSOFT)
    made.dtype = ir.DataType.FLOAT
    set_sizes(made, sizes)
    return made
