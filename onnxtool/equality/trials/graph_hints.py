"""What a graph tells of the inputs that may matter: sizes and values that it compares with, tables, thresholds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.model.domains import Domain, input_domains, uses_behind
from onnxtool.model.ir.queries import all_nodes, attribute, constant_array, constant_tensor, float_constant
from onnxtool.model.operators.table import named, operator_of
from onnxtool.report.proof import TrialKind

# Constants beside which a dim, or a number computed from dims, is likely to stand.
_COMPARING = named(compares=True)
_SIZE_READERS = _COMPARING | {"Min", "Max", "Mod", "Range", "Slice", "Where"}
# Div: a share of the longest that was trained.
_SHAPE_READERS = {"Reshape": 1, "Expand": 1, "Tile": 1, "Trilu": 1, "Div": 1}
_VALUE_READERS = _COMPARING | {"Clip", "Min", "Max", "Where"}
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
# Attributes that hold the texts which an operator knows.
_VOCABULARIES = ("keys_strings", "cats_strings", "classlabels_strings", "pool_strings", "classes_strings", "stopwords")
_MOST_TEXTS = 4096
_MOST_FEATURES = 100_000  # of an input that does not say how many it has
_SMALL = 64  # elements of a constant that may hold sizes or thresholds
_LONGEST = 8192
_MOST_POINTS = 512
_LONG = 1e15  # a number that is not written out
_FEW = 4  # delimiters
_JOINED, _LONGEST_WORD = 3, 64  # inputs that a word is joined of, and its letters
_MOST_STEPS = 1 << 24  # of a loop: more is no limit


@dataclass
class GraphHints:
    """What one or more graphs, and the code they come from, tell.

    Attributes:
        domains: input name -> the values that it may take, where they are limited.
        sizes: numbers that sizes are compared with, likeliest first.
        values: numbers that floats are compared with.
        integers: numbers that integers are compared with.
        texts: words that the graph knows: categories, vocabularies, what texts are compared with.
        thresholds: input name -> feature -> thresholds of trees that read the input directly.
        structural: integer inputs that say how large something is.
        patterns: that texts are matched with.
        points: rows of constants that rows of an input may be close to.
        delimiters: texts between which texts are cut.
        joined: input name -> text, for each word that the graph knows and joins of its inputs.
        integral: floats become integers somewhere.
        rows_needed: an operator is not known to take inputs without a row.
        programmed: code of the user's decides, which may do anything at any size.
        missing: NaN or infinity means something to the graph.
        endless: a loop goes on until values say so, which infinity may never do.
    """

    domains: dict[str, Domain] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    integers: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    thresholds: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    structural: set[str] = field(default_factory=set)
    patterns: list[str] = field(default_factory=list)
    points: list[tuple[float, ...]] = field(default_factory=list)
    delimiters: list[str] = field(default_factory=list)
    joined: list[tuple[tuple[str, str], ...]] = field(default_factory=list)
    integral: bool = False
    rows_needed: bool = True
    programmed: bool = False
    missing: bool = False
    endless: bool = False

    def merged(self, other: GraphHints) -> GraphHints:
        """Both; where they disagree on a domain, this one's holds."""
        made: dict[str, Any] = {}
        for part in fields(self):
            mine, theirs = getattr(self, part.name), getattr(other, part.name)
            if isinstance(mine, dict):
                made[part.name] = {**theirs, **mine}
            else:
                made[part.name] = list(dict.fromkeys([*mine, *theirs])) if isinstance(mine, list) else mine | theirs
        return GraphHints(**made)

    @property
    def unspecified(self) -> tuple[str, ...]:
        """Kinds of inputs on which a difference says nothing: ONNX leaves open which integer NaN becomes."""
        return (TrialKind.MISSING, TrialKind.MISSING_ROWS) if self.integral and not self.missing else ()

    def with_hints(
        self, sizes: Iterable[int] = (), values: Iterable[float] = (), *, programmed: bool = False
    ) -> GraphHints:
        """With numbers that the source's own code compares with; these come first."""
        known = [int(s) for s in sizes if 1 <= int(s) <= _LONGEST]
        numbers = [float(v) for v in values if np.isfinite(v)]
        return GraphHints(sizes=known, values=numbers, rows_needed=False, programmed=programmed).merged(self)


def read_facts(model: ir.Model) -> GraphHints:
    """Read a graph; large weights are not read."""
    facts = GraphHints(domains=input_domains(model), rows_needed=False)
    sizes: dict[int, int] = {}
    for node in all_nodes(model):
        for size, weight in _sizes(node):
            sizes[size] = max(weight, sizes.get(size, 0))
        listed = listed_numbers(node)
        facts.values += [*_values(node), *(float(v) for v in listed if not float(v).is_integer())]
        facts.integers += [*_integers(node), *(int(v) for v in listed if float(v).is_integer())]
        words = _texts(node)
        facts.texts += words
        facts.joined += joined_words(node, words[: _MOST_TEXTS - len(facts.joined)])
        facts.points += points(node)[: _MOST_POINTS - len(facts.points)]
        facts.delimiters += delimiters(node)
        facts.patterns += [attribute(node, "pattern", "")] if node.op_type == "RegexFullMatch" else []
        facts.integral |= rounds_to_integers(node)
        facts.rows_needed |= not operator_of(node).runs_empty
        facts.missing |= node.op_type in ("IsNaN", "IsInf")
        facts.endless |= node.op_type == "Loop" and _is_endless(node)
        if node.op_type.startswith("TreeEnsemble"):
            _add_trees(node, facts)
    facts.sizes = sorted(sizes, key=lambda s: (-sizes[s], s))
    facts.values = list(dict.fromkeys(facts.values))[:_MOST_TEXTS]
    facts.integers = list(dict.fromkeys(facts.integers))[:_MOST_TEXTS]
    facts.texts = list(dict.fromkeys(facts.texts))[:_MOST_TEXTS]
    facts.patterns = list(dict.fromkeys(facts.patterns))[:_FEW]
    facts.delimiters = list(dict.fromkeys(facts.delimiters))[:_FEW]
    for value in model.graph.inputs:
        if value.dtype == ir.DataType.STRING:
            facts.domains[value.name or ""] = _words(facts, facts.domains.get(value.name or ""))
    facts.structural = {
        v.name or "" for v in model.graph.inputs if v.dtype is not None and v.dtype.is_integer() and _is_structural(v)
    }
    return facts


def _words(facts: GraphHints, written: Domain | None) -> Domain:
    """What an input of texts may hold: words of the graph and another, or numbers written out, its own among them."""
    if written is None:
        return Domain(0.0, 0.0, (*facts.texts, "unseen"))
    beside = [round(n * by) for n in [*facts.integers, *facts.values] for by in (0.5, 1, 2) if abs(n) < _LONG]
    return Domain(0.0, 0.0, tuple(dict.fromkeys([*written.values, *map(str, beside)])))


def _is_endless(node: ir.Node) -> bool:
    """Whether nothing but its own condition ends a loop."""
    count = constant_array(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
    unlimited = not node.inputs or node.inputs[0] is None or (count is not None and int(count.max()) > _MOST_STEPS)
    return unlimited and len(node.inputs) > 1 and node.inputs[1] is not None


def _sizes(node: ir.Node) -> list[tuple[int, int]]:
    """(number, how likely it is that a size is compared with it)."""
    found: list[tuple[int, int]] = []
    for place, value in enumerate(node.inputs):
        weight = 0
        if node.op_type in _SIZE_READERS and not (node.op_type == "Slice" and place in (0, 3, 4)):
            weight = 3 if node.op_type not in ("Where", "Slice") else 2
        elif _SHAPE_READERS.get(node.op_type) == place:
            weight = 1
        if not weight or value is None or not _is_small(value):
            continue
        array = constant_array(value)
        if array is not None and array.dtype.kind in "iuf" and array.size:
            whole = abs(array.reshape(-1))  # of a place from the end, as of a place
            found += [(int(v), weight) for v in whole if np.isfinite(v) and 1 < v <= _LONGEST and float(v).is_integer()]
    if node.op_type in ("Gather", "Slice") and node.inputs and node.inputs[0] is not None:
        table = constant_tensor(node.inputs[0])
        if table is not None:
            dims = list(table.shape.numpy())
            # Positions are looked up or cut off: the number of rows is the longest that works.
            lengths = dims[:1] if node.op_type == "Gather" else dims
            found += [(d, 2) for d in lengths if 8 <= d <= _LONGEST]
    return found


def _values(node: ir.Node) -> list[float]:
    found = limits(node)
    if node.op_type not in _VALUE_READERS:
        return found
    for value in node.inputs:
        if value is None or not _is_small(value):
            continue
        array = constant_array(value)
        if array is not None and array.dtype.kind == "f" and 0 < array.size <= 16:
            most = 1e290 if array.dtype.itemsize == 8 else 1e30
            found += [float(v) for v in array.reshape(-1) if np.isfinite(v) and abs(v) < most]
    return found


def _integers(node: ir.Node) -> list[int]:
    """Small integer constants beside which an integer may stand; sizes among them too, which do no harm."""
    if node.op_type not in _VALUE_READERS and node.op_type != "Mod":
        return []
    arrays = [constant_array(v) for v in node.inputs if v is not None and _is_small(v)]
    found = [a.reshape(-1) for a in arrays if a is not None and a.dtype.kind in "iu" and 0 < a.size <= 16]
    return [int(v) for array in found for v in array if abs(int(v)) < 1 << 31]


def _texts(node: ir.Node) -> list[str]:
    found: list[str | bytes] = []
    for name in _VOCABULARIES:
        found += attribute(node, name, ())
    for value in node.inputs:
        array = constant_array(value) if value is not None and _is_small(value) else None
        if array is not None and array.dtype.kind in "OUS":
            found += list(array.reshape(-1)[:_MOST_TEXTS])
    return [_text(t) for t in found[:_MOST_TEXTS]]


def _text(held: object) -> str:
    return held.decode(errors="replace") if isinstance(held, bytes) else str(held)


def joined_words(node: ir.Node, words: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
    """What the inputs of a graph hold where a node meets each of its words, if it joins them by StringConcat."""
    found: list[tuple[tuple[str, str], ...]] = []
    for parts in [_parts(value) for value in node.inputs] if words else ():
        names = [part.name or "" for part in parts if isinstance(part, ir.Value)]
        if len(parts) < 2 or not 1 <= len(names) <= _JOINED:  # more could be matched in very many ways
            continue
        pattern = re.compile("".join("(.*?)" if isinstance(p, ir.Value) else re.escape(p) for p in parts), re.DOTALL)
        matches = [match for word in words if len(word) <= _LONGEST_WORD and (match := pattern.fullmatch(word))]
        found += [tuple(zip(names, match.groups(), strict=True)) for match in matches]
    return found


def _parts(value: ir.Value | None) -> list[ir.Value | str]:
    """The texts that a text is joined of: inputs and constants; nothing where others, or very many, are among them."""
    found: list[ir.Value | str] = []
    pending = [value]
    while pending and len(found) + len(pending) <= _MOST_TEXTS:
        part = pending.pop(0)
        array = constant_array(part) if part is not None and _is_small(part) else None
        node = part.producer() if part is not None else None
        if array is not None and array.dtype.kind in "OUS" and array.size == 1:
            found.append(_text(array.reshape(-1)[0]))
        elif part is not None and part.is_graph_input():
            found.append(part)
        elif array is None and node is not None and node.op_type == "StringConcat":
            pending = [*node.inputs, *pending]
        elif array is None and node is not None and node.inputs and operator_of(node).moves:
            pending.insert(0, node.inputs[0])
        else:
            return []
    return [] if pending else found


def _is_small(value: ir.Value) -> bool:
    if value.const_value is not None:
        return value.const_value.size <= _SMALL
    node = value.producer()
    return node is not None and node.op_type == "Constant" and not _large_constant(node)


def _large_constant(node: ir.Node) -> bool:
    tensor = node.attributes.get("value")
    return tensor is not None and tensor.type == ir.AttributeType.TENSOR and tensor.as_tensor().size > _SMALL


def _add_trees(node: ir.Node, facts: GraphHints) -> None:
    """Thresholds of each feature, where the trees read a graph input as it is."""
    facts.missing |= any(attribute(node, "nodes_missing_value_tracks_true", ()) or ())
    read = _read_columns(node.inputs[0])
    modes = attribute(node, "nodes_modes", ())
    features = attribute(node, "nodes_featureids", ())
    numbers = attribute(node, "nodes_values", attribute(node, "nodes_values_as_tensor", None))
    splits = attribute(node, "nodes_splits", None)
    if splits is not None:
        numbers, features = splits, attribute(node, "nodes_featureids", ())
        inner = np.ones(len(features), bool)
    else:
        inner = np.array([m not in ("LEAF", b"LEAF") for m in modes], bool)
    if numbers is None or not len(features):
        return
    array = np.asarray(numbers.numpy() if hasattr(numbers, "numpy") else numbers, dtype=np.float64)
    places = np.asarray(features)
    if len(array) != len(places) or len(inner) != len(places):
        return
    keep = inner & np.isfinite(array)
    for feature in np.unique(places[keep]):
        name, place = read[feature] if feature < len(read) else ("", 0)
        if name:
            own = facts.thresholds.setdefault(name, {})
            found = array[keep & (places == feature)]
            own[place] = np.unique(np.concatenate([own.get(place, np.zeros(0)), found]))


def _read_columns(value: ir.Value | None) -> list[tuple[str, int]]:
    """The graph input and its column that each column of a matrix is; ("", 0) for what is computed."""
    width = value.shape[-1] if value is not None and value.shape is not None and len(value.shape) == 2 else None
    count = width if isinstance(width, int) else 0
    before = None if value is None else value.producer()
    if value is not None and value.is_graph_input():
        return [(value.name or "", i) for i in range(count or _MOST_FEATURES)]
    if before is not None and before.op_type in ("Cast", "Identity"):
        return _read_columns(before.inputs[0])
    if before is not None and before.op_type == "Concat" and attribute(before, "axis") == 1:
        parts = [(part, _read_columns(part)) for part in before.inputs]
        if all(part is not None and part.shape is not None and isinstance(part.shape[-1], int) for part, _ in parts):
            return [column for _, columns in parts for column in columns]
    return [("", 0)] * count


def _is_structural(value: ir.Value) -> bool:
    """Does it reach, through what keeps integers, an input that says how large something is?"""
    return any(place in operator_of(node).sizes for node, place in uses_behind(value, _carries_integers))


def _carries_integers(node: ir.Node, place: int) -> bool:
    if node.op_type == "Cast":
        return bool(attribute(node, "to") != ir.DataType.FLOAT)
    row = operator_of(node)
    return node.op_type in _ARITHMETIC or (row.moves and row.carries(place))


# Attributes that list the numbers which an operator knows.
_LISTS = ("keys_int64s", "keys_floats", "cats_int64s", "pool_int64s", "classes_int64s")
_SINGLE = ("replaced_value_int64", "replaced_value_float", "ignore_index")
_MOST = 1 << 16  # numbers of a table of points
_LIMITS = {"ThresholdedRelu": ("alpha", 1.0), "Shrink": ("lambd", 0.5), "Binarizer": ("threshold", 0.0)}


def limits(node: ir.Node) -> list[float]:
    """Numbers in attributes on either side of which an operator does something else."""
    if node.op_type in _LIMITS:
        return [float(attribute(node, *_LIMITS[node.op_type]))]
    if operator_of(node).shape == "recurrent" and (clip := attribute(node, "clip", None)):
        return [float(clip), -float(clip)]
    return []


def listed_numbers(node: ir.Node) -> list[float]:
    """Keys, categories and the like."""
    single = [number for name in _SINGLE if (number := attribute(node, name, None)) is not None]
    return [*single, *(number for name in _LISTS for number in attribute(node, name, None) or ())]


def points(node: ir.Node) -> list[tuple[float, ...]]:
    """Rows that inputs are measured against: support vectors, and constants that are subtracted from."""
    vectors = attribute(node, "support_vectors", None) or ()
    count = attribute(node, "n_supports", 0) or sum(attribute(node, "vectors_per_class", ()))
    found = [np.reshape(vectors, (count, -1))] if count and len(vectors) % count == 0 else []
    for value in node.inputs if node.op_type in ("Sub", "CDist") else ():
        large = value is None or (value.const_value is not None and value.const_value.size > _MOST)
        array = None if large else float_constant(value)
        if array is not None and array.ndim and array.size:
            found.append(array.reshape(-1, array.shape[-1]))
    return [tuple(row) for rows in found for row in rows.tolist() if len(row) > 1 and np.isfinite(row).all()]


def delimiters(node: ir.Node) -> list[str]:
    """Texts between which a text is cut."""
    if node.op_type == "StringSplit":
        return [attribute(node, "delimiter", "") or " "]
    if node.op_type == "Tokenizer":
        return [s for s in attribute(node, "separators", ()) if s]
    return []


def rounds_to_integers(node: ir.Node) -> bool:
    """Whether floats become integers, of which NaN has none: what it becomes is left to the runtime."""
    if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear"):
        return True
    to = attribute(node, "to", None) if node.op_type == "Cast" else None
    return to is not None and ir.DataType(to).is_integer()
