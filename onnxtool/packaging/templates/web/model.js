// The model of this folder in the browser: onnxruntime-web from ./runtime, nothing from elsewhere.
//
//   import { load } from "./model.js";
//   const model = await load();
//   const { output } = await model.run({ input: { data: new Float32Array(6), dims: [2, 3] } });

export const INPUTS = @INPUTS@;
export const OUTPUTS = @OUTPUTS@;
const SHARED = @SHARED@; // dims that several inputs must agree in: inputs and axes
const HAS_WEBGPU = @WEBGPU@; // whether its runtime is in this folder

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array,
  int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array, string: Array,
};

/** The array type that holds the values of an element type. */
export function arrayType(type) {
  return ARRAYS[type];
}

/** Loads the runtime and the model. `device` is "wasm" or "webgpu"; the latter where folder and browser have it. */
export async function load({ device = "wasm", threads = navigator.hardwareConcurrency ?? 1 } = {}) {
  const here = new URL(".", import.meta.url).href;
  const gpu = HAS_WEBGPU && device === "webgpu" && (await navigator.gpu?.requestAdapter());
  const ort = await import(here + (gpu ? "runtime/ort.webgpu.min.mjs" : "runtime/ort.wasm.min.mjs"));
  ort.env.wasm.wasmPaths = here + "runtime/";
  ort.env.wasm.numThreads = globalThis.crossOriginIsolated ? threads : 1; // threads need the headers of serve.py
  const session = await told("load the model", () =>
    ort.InferenceSession.create(here + "model.onnx", { executionProviders: gpu ? ["webgpu", "wasm"] : ["wasm"] }));

  return {
    device: gpu ? "webgpu" : "wasm",
    threads: ort.env.wasm.numThreads,
    /** One run: {name: {data, dims}} -> {name: {data, dims}}. */
    async run(feeds) {
      const tensors = {};
      for (const spec of INPUTS) {
        const given = feeds[spec.name];
        if (!given) throw new Error(`the model needs ${spec.name}: ${spec.type}[${spec.dims}]`);
        const size = given.dims.reduce((a, b) => a * b, 1);
        const fits = given.dims.length === spec.dims.length
          && spec.dims.every((d, i) => typeof d !== "number" || d === given.dims[i]);
        if (!fits || given.data.length !== size) {
          throw new Error(`${spec.name} must be ${spec.type}[${spec.dims}], not [${given.dims}] of ${given.data.length}`);
        }
        tensors[spec.name] = new ort.Tensor(spec.type, given.data, given.dims);
      }
      for (const [dim, places] of Object.entries(SHARED)) {
        const sizes = places.map(([name, axis]) => feeds[name].dims[axis]);
        if (new Set(sizes).size > 1) {
          throw new Error(`the inputs must agree in ${dim}: ${places.map(([name], i) => `${name} has ${sizes[i]}`).join(", ")}`);
        }
      }
      const results = await told("run the model", () => session.run(tensors));
      const found = {};
      for (const spec of OUTPUTS) {
        const tensor = results[spec.name];
        found[spec.name] = { data: await tensor.getData(), dims: [...tensor.dims] };
      }
      return found;
    },
    close: () => session.release(),
  };
}

/** The runtime throws numbers at times, which are addresses in its memory and tell nobody anything. */
async function told(what, action) {
  try {
    return await action();
  } catch (error) {
    const why = typeof error === "number"
      ? `its WASM build gave up (code ${error}): out of memory, or an operator that it lacks`
      : error.message ?? String(error);
    throw new Error(`cannot ${what}: ${why}`);
  }
}
