/** Values of a tensor, row by row, and its dims. */
export interface Tensor<T> {
  data: T;
  dims: number[];
}

export interface Inputs {
@INPUT_TYPES@
}

export interface Outputs {
@OUTPUT_TYPES@
}

export interface Spec {
  name: string;
  type: string;
  dims: (number | string | null)[];
  columns?: string[];
}

export interface Model {
  readonly device: "wasm" | "webgpu";
  readonly threads: number;
  run(feeds: Inputs): Promise<Outputs>;
  close(): Promise<void>;
}

export declare const INPUTS: Spec[];
export declare const OUTPUTS: Spec[];
export declare function arrayType(type: string): unknown;
export declare function load(options?: { device?: "wasm" | "webgpu"; threads?: number }): Promise<Model>;
