// Reads NumPy's .npz files whose members are stored as they are (not compressed).

const KINDS = {
  f2: globalThis.Float16Array ?? Uint16Array, f4: Float32Array, f8: Float64Array, b1: Uint8Array,
  i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array,
  i8: BigInt64Array, u8: BigUint64Array,
};

/** {name: {data, dims}} of an .npz file; `typeOf` tells which names are wanted: those for which it gives something. */
export async function readNpz(url, typeOf) {
  const bytes = await (await fetch(url)).arrayBuffer();
  const view = new DataView(bytes), found = {};
  let end = bytes.byteLength - 22;
  while (view.getUint32(end, true) !== 0x06054b50) end--;
  let at = view.getUint32(end + 16, true);
  for (let count = view.getUint16(end + 10, true); count > 0; count--) {
    const nameLength = view.getUint16(at + 28, true), extra = view.getUint16(at + 30, true), note = view.getUint16(at + 32, true);
    const name = new TextDecoder().decode(new Uint8Array(bytes, at + 46, nameLength)).replace(/\.npy$/, "");
    const local = view.getUint32(at + 42, true);
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    if (typeOf(name)) found[name] = readNpy(bytes, start);
    at += 46 + nameLength + extra + note;
  }
  return found;
}

function readNpy(bytes, start) {
  const view = new DataView(bytes, start);
  const wide = view.getUint8(6) > 1;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const head = new TextDecoder("latin1").decode(new Uint8Array(bytes, start + (wide ? 12 : 10), length));
  const kind = head.match(/'descr': '[<|>=]?(\w+)'/)[1];
  const dims = head.match(/'shape': \(([^)]*)\)/)[1].split(",").map((t) => t.trim()).filter((t) => t).map(Number);
  const from = start + (wide ? 12 : 10) + length, count = dims.reduce((a, b) => a * b, 1);
  if (kind.startsWith("U")) {
    const width = Number(kind.slice(1)), points = new Uint32Array(bytes.slice(from, from + 4 * width * count));
    const text = (i) => String.fromCodePoint(...points.subarray(i * width, (i + 1) * width)).replace(/\0+$/, "");
    return { data: Array.from({ length: count }, (_, i) => text(i)), dims };
  }
  const type = KINDS[kind];
  return { data: new type(bytes.slice(from, from + count * type.BYTES_PER_ELEMENT)), dims };
}
