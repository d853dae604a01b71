"""Pairs of graphs for `proof_matrix.py`: keys, categories, texts, patterns, points, hashes and places that graphs list;
each with a sound twin."""

# ruff: noqa: E501  (a graph is one line, however long; a list)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from proof_pairs import X4, Pair, constant, two_forms
from proof_pairs_hidden import listed, whole

RANDOM = np.random.default_rng(77)
O1 = listed("o", 1)
INTS = "g (int64[b,n] x) => (int64[b,n] y)"


def lists() -> Iterator[tuple[Pair, Pair]]:
    """(wrong, sound)."""
    tab = RANDOM.standard_normal((5003, 4)).astype(np.float32)
    tabc = tab.copy()
    tabc[4711] += 1
    tab = RANDOM.standard_normal((5003, 4)).astype(np.float32)
    tabc = tab.copy()
    tabc[4711] += 1
    big = (
        listed("z", 0)
        + listed("m1", -1)
        + listed("far", 99999)
        + O1
        + whole("k31", 31)
        + whole("m", 5003)
        + "a = Slice(ids, z, m1, o)  c = Slice(ids, o, far, o)  p = Mul(c, k31)  s = Add(p, a)  r = Mod(s, m)  y = Gather(w, r)"
    )
    yield from two_forms(
        "a bucket of a hash of two tokens",
        "g (int64[b,n] ids) => (float[b,k,4] y)",
        big,
        big,
        big.replace("Add(p, a)", "Add(a, p)"),
        weights={"w": tab},
        changed={"w": tabc},
    )
    yield from two_forms(
        "no axes at all",
        "g (float[b,4] x, int64[k] axes) => (float[p,q] y)",
        "y = ReduceSum <noop_with_empty_axes = 0> (x, axes)",
        "y = ReduceSum <noop_with_empty_axes = 1> (x, axes)",
        "x1 = Identity(x)  y = ReduceSum <noop_with_empty_axes = 0> (x1, axes)",
    )
    t6 = RANDOM.standard_normal((50, 4)).astype(np.float32)
    yield from two_forms(
        "GatherND below zero",
        "g (int64[b,1] ids) => (float[b,4] y)",
        "y = GatherND(w, ids)",
        "a = Abs(ids)  y = GatherND(w, a)",
        "i = Identity(ids)  y = GatherND(w, i)",
        weights={"w": t6},
    )
    yield from two_forms(
        "one place twice, added",
        "g (float[8,4] x, int64[k,1] places, float[k,4] u) => (float[8,4] y)",
        'y = ScatterND <reduction = "add"> (x, places, u)',
        "p = GatherND(x, places)  s = Add(p, u)  y = ScatterND(x, places, s)",
        'x1 = Identity(x)  y = ScatterND <reduction = "add"> (x1, places, u)',
    )
    trio = "g (float[b,8] x, int64[b,1] ids, bool[b,1] flag) => (float[b,8] y)"
    cond = (
        O1
        + "p = MatMul(x, v)  "
        + constant("c", 6.0)
        + "q1 = Greater(p, c)  "
        + whole("k", 17)
        + "q2 = Equal(ids, k)  q3 = And(q1, q2)  q = And(q3, flag)  "
    )
    v8 = RANDOM.standard_normal((8, 1)).astype(np.float32)
    yield from two_forms(
        "a product, an id and a flag",
        trio,
        "y = Identity(x)",
        cond + "n = Neg(x)  y = Where(q, n, x)",
        None,
        weights={"v": v8},
    )
    ml = '"" : 20, "ai.onnx.ml" : 3'
    yield from two_forms(
        "missing as -999",
        X4,
        "y = ai.onnx.ml.Imputer <imputed_value_floats = [1.0, 2.0, 3.0, 4.0], replaced_value_float = -999.0> (x)",
        "y = Identity(x)",
        "n = Constant <value_float = -999.0> ()  e = Equal(x, n)  v = Constant <value = float[4] {1, 2, 3, 4}> ()  y = Where(e, v, x)",
        imports=ml,
    )
    le = 'y = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b", "c"], values_int64s = [1, 2, 3], default_int64 = {}> (x)'
    yield from two_forms(
        "an unknown label",
        "g (string[b] x) => (int64[b] y)",
        le.format(-1),
        le.format(0),
        "x1 = Identity(x)  " + le.format(-1).replace("(x)", "(x1)"),
        imports=ml,
    )
    li = "y = ai.onnx.ml.LabelEncoder <keys_int64s = [10, 2000, 31415], values_int64s = [1, 2, {}], default_int64 = 0> (x)"
    yield from two_forms(
        "one key of integers",
        "g (int64[b] x) => (int64[b] y)",
        li.format(3),
        li.format(4),
        "x1 = Identity(x)  " + li.format(3).replace("(x)", "(x1)"),
        imports=ml,
    )
    lf = "y = ai.onnx.ml.LabelEncoder <keys_floats = [0.5, 7.25], values_floats = [1.0, {}], default_float = 0.0> (x)"
    yield from two_forms(
        "one key of floats",
        "g (float[b] x) => (float[b] y)",
        lf.format("2.0"),
        lf.format("3.0"),
        "x1 = Identity(x)  " + lf.format("2.0").replace("(x)", "(x1)"),
        imports=ml,
    )
    tree = 'y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, nodes_treeids = [0,0,0,0,0], nodes_nodeids = [0,1,2,3,4], nodes_featureids = [0,0,1,0,0], nodes_values = [0.5, 0.0, 7.5, 0.0, 0.0], nodes_modes = ["{0}","LEAF","{0}","LEAF","LEAF"], nodes_truenodeids = [1,0,3,0,0], nodes_falsenodeids = [2,0,4,0,0], nodes_missing_value_tracks_true = [{1},0,0,0,0], target_treeids = [0,0,0], target_nodeids = [1,3,4], target_ids = [0,0,0], target_weights = [1.0, 2.0, 3.0]> (x)'
    th_head = "g (float[b,4] x) => (float[b,1] y)"
    yield from two_forms(
        "a tree at its threshold",
        th_head,
        tree.format("BRANCH_LEQ", 0),
        tree.format("BRANCH_LT", 0),
        "x1 = Identity(x)  " + tree.format("BRANCH_LEQ", 0).replace("(x)", "(x1)"),
        imports=ml,
    )
    yield from two_forms(
        "a tree's missing values", th_head, tree.format("BRANCH_LEQ", 0), tree.format("BRANCH_LEQ", 1), None, imports=ml
    )
    yield from two_forms(
        "a text of five parts",
        "g (string[b] x) => (string[b,p] y, int64[b] c)",
        'y, c = StringSplit <delimiter = " "> (x)',
        'y, c = StringSplit <delimiter = " ", maxsplit = 3> (x)',
        'x1 = Identity(x)  y, c = StringSplit <delimiter = " "> (x1)',
    )
    tf = 'y = TfIdfVectorizer <mode = "TF", min_gram_length = 2, max_gram_length = 2, max_skip_count = {}, ngram_counts = [0, 0], ngram_indexes = [0, 1], pool_int64s = [17, 23, 99, 5]> (x)'
    yield from two_forms(
        "pairs of tokens apart",
        "g (int64[b,n] x) => (float[b,2] y)",
        tf.format(0),
        tf.format(1),
        "x1 = Identity(x)  " + tf.format(0).replace("(x)", "(x1)"),
    )
    sq = "s = SplitToSequence <axis = 1> (x)  "
    yield from two_forms(
        "a part from the end",
        "g (float[b,n] x, int64 i) => (float[b,1] y)",
        sq + "y = SequenceAt(s, i)",
        sq + "a = Abs(i)  y = SequenceAt(s, a)",
        sq + "a = Identity(i)  y = SequenceAt(s, a)",
    )
    yield from two_forms(
        "an empty batch",
        "g (float[b,4] x) => (float[b,2,2] y)",
        "s = Constant <value_ints = [-1, 2, 2]> ()  y = Reshape(x, s)",
        "s = Constant <value_ints = [0, -1, 2]> ()  y = Reshape(x, s)",
        "s = Constant <value_ints = [0, 2, 2]> ()  y = Reshape(x, s)",
    )
    yield from two_forms(
        "a stop word",
        "g (string[n] x) => (string[m] y)",
        "y = StringNormalizer <is_case_sensitive = 1> (x)",
        'y = StringNormalizer <is_case_sensitive = 1, stopwords = ["the"]> (x)',
        "x1 = Identity(x)  y = StringNormalizer <is_case_sensitive = 1> (x1)",
    )
    yield from two_forms(
        "ScatterElements, the largest",
        "g (float[8] x, int64[k] i, float[k] u) => (float[8] y)",
        'y = ScatterElements <reduction = "max"> (x, i, u)',
        "g0 = GatherElements(x, i)  m = Max(g0, u)  y = ScatterElements(x, i, m)",
        None,
    )
    yield from two_forms(
        "GatherElements below zero",
        "g (float[b,8] x, int64[b,3] i) => (float[b,3] y)",
        "y = GatherElements <axis = 1> (x, i)",
        "z = Constant <value = int64 {0}> ()  j = Max(i, z)  y = GatherElements <axis = 1> (x, j)",
        None,
    )
    yield from two_forms(
        "a Gather that clips what is too large",
        "g (int64[b] ids) => (float[b,4] y)",
        "c = Constant <value = int64 {49}> ()  j = Min(ids, c)  y = Gather(w, j)",
        "c = Constant <value = int64 {48}> ()  j = Min(ids, c)  y = Gather(w, j)",
        None,
        weights={"w": t6},
    )
    hsh = (
        whole("a", 6364136223846793005)
        + whole("b2", 1442695040888963407)
        + whole("s", 33)
        + whole("m", 4096)
        + 'p = Mul(ids, a)  q0 = Add(p, b2)  u = Cast <to = 13> (q0)  sh = Constant <value = uint64 {33}> ()  v = BitShift <direction = "RIGHT"> (u, sh)  mm = Constant <value = uint64 {4095}> ()  r0 = BitwiseAnd(v, mm)  r = Cast <to = 7> (r0)  y = Gather(w, r)'
    )
    tb = RANDOM.standard_normal((4096, 4)).astype(np.float32)
    tc = tb.copy()
    tc[777] += 1
    tb = RANDOM.standard_normal((4096, 4)).astype(np.float32)
    tc = tb.copy()
    tc[777] += 1
    yield from two_forms(
        "a bucket of a 64-bit hash",
        "g (int64[b,n] ids) => (float[b,n,4] y)",
        hsh,
        hsh,
        hsh.replace("Mul(ids, a)", "Mul(a, ids)"),
        weights={"w": tb},
        changed={"w": tc},
    )
    yield from two_forms(
        "a flag and the first id equal to the length",
        "g (int64[b,n] x, bool[1] flag) => (int64[b,n] y)",
        "y = Identity(x)",
        "nn = Shape <start = 1, end = 2> (x)  z = Constant <value_ints = [0]> ()  f = Gather <axis = 1> (x, z)  e = Equal(f, nn)  q = And(e, flag)  n = Neg(x)  y = Where(q, n, x)",
        None,
    )
    one_hot = "y = ai.onnx.ml.OneHotEncoder <cats_int64s = [3, 7, 4242], zeros = 1> (x)"
    yield from two_forms(
        "one category of 4242",
        "g (int64[b] x) => (float[b,3] y)",
        one_hot,
        one_hot.replace("4242", "4243"),
        None,
        imports=ml,
    )
    bi = "y = ai.onnx.ml.Binarizer <threshold = {}> (x)"
    yield from two_forms("a threshold of 321.5", X4, bi.format("321.5"), bi.format("321.6"), None, imports=ml)
    sv = 'y = ai.onnx.ml.SVMRegressor <coefficients = [1.0, -1.0], kernel_params = [{}, 0.0, 3.0], kernel_type = "RBF", n_supports = 2, rho = [0.5], support_vectors = [0.0, 0.0, 0.0, 0.0, 20.0, 20.0, 20.0, 20.0]> (x)'
    yield from two_forms(
        "a kernel around a far point",
        th_head,
        sv.format("1.0"),
        sv.format("1.0").replace("[1.0, -1.0]", "[1.0, -0.5]"),
        None,
        imports=ml,
    )
    yield from two_forms(
        "texts that contain a word",
        "g (string[b] x) => (bool[b] y)",
        'y = RegexFullMatch <pattern = ".*urgent.*"> (x)',
        'y = RegexFullMatch <pattern = "urgent.*"> (x)',
        None,
    )
    yield from two_forms(
        "a mail address",
        "g (string[b] x) => (bool[b] y)",
        'y = RegexFullMatch <pattern = "[a-z0-9.]+@[a-z]+[.](com|org)"> (x)',
        'y = RegexFullMatch <pattern = "[a-z0-9.]+@[a-z]+[.]com"> (x)',
        None,
    )
    yield from two_forms(
        "a date text",
        "g (string[b] x) => (bool[b] y)",
        'y = RegexFullMatch <pattern = "[0-9]{4}-[0-9]{2}-[0-9]{2}"> (x)',
        'y = RegexFullMatch <pattern = "20[0-9]{2}-[0-9]{2}-[0-9]{2}"> (x)',
        None,
    )
    yield from two_forms(
        "joined texts in the other order",
        "g (string[b] x, string[b] z) => (string[b] y)",
        "y = StringConcat(x, z)",
        'e = Equal(x, z)  a = StringConcat(x, z)  s = Constant <value_string = "!"> ()  c = StringConcat(a, s)  y = Where(e, c, a)',
        None,
    )
    yield from two_forms(
        "numbers as texts above 100",
        "g (string[b] x) => (float[b] y)",
        "y = Cast <to = 1> (x)",
        constant("c", 100.0) + "f = Cast <to = 1> (x)  y = Min(f, c)",
        "x1 = Identity(x)  y = Cast <to = 1> (x1)",
    )
