// A demo: a file picker for images, a field for each column of a table, a text field for texts, JSON for the rest.
import { INPUTS, OUTPUTS, arrayType, load } from "./model.js";

const byId = (id) => document.getElementById(id);
const size = (dim, otherwise) => (typeof dim === "number" ? dim : otherwise);

/** Where the channels of an image are, 1 or 3 of four dims; undefined where there are none. */
function channelsAxis(spec) {
  const find = (...counts) => [1, 3].find((axis) => counts.includes(spec.dims[axis]));
  return spec.dims.length === 4 ? find(1, 3) ?? find(4) : undefined;
}

/** The values of one pixel; grey as Pillow computes it, so that a file gives the answer that it gives elsewhere. */
function channelsOf([r, g, b, a], count) {
  return count === 1 ? [(19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16] : [r, g, b, a].slice(0, count);
}

// How EXIF's orientations 2 to 8 turn a picture of w by h pixels, as a matrix of a canvas.
const TURNS = [
  (w) => [-1, 0, 0, 1, w, 0], (w, h) => [-1, 0, 0, -1, w, h], (w, h) => [1, 0, 0, -1, 0, h], () => [0, 1, 1, 0, 0, 0],
  (w, h) => [0, 1, -1, 0, h, 0], (w, h) => [0, -1, -1, 0, h, w], (w) => [0, -1, 1, 0, 0, w],
];

/** The EXIF orientation of a WebP file, which is taken out of its bytes: browsers do not agree on it; 1 for none. */
function takeOrientation(view) {
  const little = (at) => view.getUint32(at, true), short = (at, order) => view.getUint16(at, order);
  if (view.byteLength < 12 || little(0) !== 0x46464952 || little(8) !== 0x50424557) return 1; // "RIFF", "WEBP"
  for (let at = 12; at + 8 < view.byteLength; at += 8 + little(at + 4) + (little(at + 4) % 2)) {
    if (little(at) !== 0x46495845) continue; // "EXIF"
    view.setUint32(at, 0);
    const start = at + (little(at + 8) === 0x66697845 ? 14 : 8); // some write "Exif" and two zeros first
    const order = short(start) === 0x4949, entries = start + view.getUint32(start + 4, order);
    for (let i = entries + 2; i < entries + 2 + 12 * short(entries, order); i += 12) {
      if (short(i, order) === 0x0112) return short(i + 8, order);
    }
  }
  return 1;
}

/** The pixels of a file, turned as its EXIF data says, colours as they are in the file. */
async function pictureOf(file) {
  const bytes = await file.arrayBuffer(), turn = TURNS[takeOrientation(new DataView(bytes)) - 2];
  const how = { imageOrientation: "from-image", colorSpaceConversion: "none", premultiplyAlpha: "none" };
  const picture = await createImageBitmap(new Blob([bytes], { type: file.type }), how);
  if (!turn) return picture;
  const { width: w, height: h } = picture, matrix = turn(w, h);
  const turned = matrix[0] ? new OffscreenCanvas(w, h) : new OffscreenCanvas(h, w), pen = turned.getContext("2d");
  pen.setTransform(...matrix);
  pen.drawImage(picture, 0, 0);
  return turned;
}

function imageField(spec) {
  const axis = channelsAxis(spec);
  const wanted = axis === 3 ? spec.dims.slice(1, 3) : spec.dims.slice(2); // height and width; no number: any
  const count = spec.dims[axis], raw = spec.type === "uint8";
  const canvas = document.createElement("canvas");
  const picker = Object.assign(document.createElement("input"), { type: "file", accept: ".png, .jpg, .jpeg, .webp, .bmp" });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  let drawn; // the file on the canvas
  picker.addEventListener("change", async () => {
    const file = picker.files[0];
    const picture = file && (await pictureOf(file).catch(() => undefined));
    if (file !== picker.files[0]) return; // another one has been chosen meanwhile
    drawn = picture && file;
    if (!picture) Object.assign(canvas, { width: 0, height: 0 });
    if (!file) return;
    if (!picture) return byId("form").requestSubmit(); // which says that there is none
    const own = [picture.height, picture.width];
    // What takes pixels as they are gets them so; sizes that do not fit are told by the model. Other models need
    // pre-processing, of which this is a sketch: the size here, 0 to 1 below.
    const [height, width] = raw ? own : wanted.map((d, i) => size(d, own[i]));
    Object.assign(canvas, { width, height });
    pen.drawImage(picture, 0, 0, width, height);
    byId("form").requestSubmit();
  });
  return {
    elements: [picker, canvas],
    read() {
      const { height, width } = canvas, chosen = picker.files[0]?.name;
      if (!drawn) throw new Error(`${spec.name}: ${chosen ? `${chosen} is no picture` : "no picture is chosen"}`);
      const pixels = pen.getImageData(0, 0, width, height).data;
      if (pixels.some((value, i) => i % 4 === 3 && value < 255)) {
        throw new Error(`${spec.name}: ${chosen} is transparent in places, whose colours a page cannot read`);
      }
      const data = new (arrayType(spec.type))(height * width * count);
      for (let at = 0; at < height * width; at++) {
        channelsOf(pixels.subarray(4 * at, 4 * at + 4), count).forEach((value, c) => {
          data[axis === 3 ? at * count + c : c * height * width + at] = raw ? value : value / 255;
        });
      }
      return { data, dims: axis === 3 ? [1, height, width, count] : [1, count, height, width] };
    },
  };
}

function textField(spec) {
  const area = document.createElement("textarea");
  return {
    elements: [area],
    read() {
      const lines = area.value.split("\n");
      if (!lines.at(-1)) lines.pop(); // behind the last line
      if (!lines.length) throw new Error(`${spec.name}: no text`);
      return { data: lines, dims: spec.dims.map((_, i) => (i ? 1 : lines.length)) };
    },
  };
}

/** A value of an element type, from a number, a boolean or a field's text; what the type does not have is an error. */
function valueOf(given, type, name) {
  if (type === "string") return given;
  const text = String(given).trim(), whole = type.includes("int");
  const kinds = { string: true, number: !whole || Number.isSafeInteger(given), boolean: type === "bool" };
  const form = type === "bool" ? /^(true|false|0|1)$/ : whole ? /^-?\d+$/ : /./;
  const value = text === "true" ? 1 : text === "false" ? 0 : whole && form.test(text) ? BigInt(text) : Number(text);
  if (!kinds[typeof given] || !form.test(text) || (!whole && !Number.isFinite(value))) {
    throw new Error(`${name}: ${text === "" ? "nothing" : text} is not a value of ${type}`);
  }
  const held = arrayType(type).of(type.endsWith("int64") ? value : Number(value))[0];
  if (whole ? BigInt(held) !== value : !Number.isFinite(held)) throw new Error(`${name}: ${text} is out of the range of ${type}`);
  return held;
}

/** One row of a table: a field for each column. */
function tableField(spec) {
  const titles = Array.from({ length: spec.dims[1] }, (_, i) => spec.columns?.[i] ?? `${spec.name}, column ${i}`);
  const kind = spec.type === "string" ? { type: "text" } : { type: "number", step: "any", value: 0 };
  const cells = titles.map((title) => Object.assign(document.createElement("input"), { ...kind, title }));
  return {
    elements: cells,
    read() {
      const values = cells.map((cell, i) => valueOf(cell.value, spec.type, titles[i]));
      return { data: arrayType(spec.type).from(values), dims: [1, cells.length] };
    },
  };
}

function isTable(spec) {
  const [rows, columns] = spec.dims;
  return spec.dims.length === 2 && (typeof rows !== "number" || rows === 1) && columns > 0 && columns <= 64;
}

function jsonField(spec) {
  const dims = spec.dims.map((d) => size(d, 1));
  const nested = (rest) => (rest.length ? Array.from({ length: rest[0] }, () => nested(rest.slice(1))) : 0);
  const area = Object.assign(document.createElement("textarea"), { value: JSON.stringify(nested(dims)) });
  return {
    elements: [area],
    read() {
      const value = JSON.parse(area.value), shape = [];
      for (let level = value; Array.isArray(level); level = level[0]) shape.push(level.length);
      const even = (level, [length, ...rest]) =>
        length === undefined ? !Array.isArray(level) : level?.length === length && level.every((l) => even(l, rest));
      if (!even(value, shape)) throw new Error(`${spec.name}: lists of different lengths`);
      const data = [value].flat(Infinity).map((v) => valueOf(typeof v === "string" ? null : v, spec.type, spec.name));
      return { data: arrayType(spec.type).from(data), dims: shape };
    },
  };
}

function fieldFor(spec) {
  if (spec.type === "float16" && !globalThis.Float16Array) throw new Error("this browser has no Float16Array");
  if (spec.type === "string" && !(isTable(spec) && spec.dims[1] > 1)) return textField(spec);
  if (channelsAxis(spec) !== undefined) return imageField(spec);
  return isTable(spec) ? tableField(spec) : jsonField(spec);
}

/** An output; its largest values with the names of their classes, where the model has them. */
function shown({ data, dims }, names) {
  const best = [];
  data.forEach((v, i) => {
    if (best.length < 5 || v > best[4][0]) {
      best.push([v, i]);
      best.sort((a, b) => (a[0] < b[0]) - (a[0] > b[0])).splice(5);
    }
  });
  return `[${dims}] ${data.slice(0, 20).join(", ")}${data.length > 20 ? " ..." : ""}\n`
    + (typeof data[0] !== "string" && (names || data.length > 5)
      ? `largest: ${best.map(([v, i]) => `${names?.[i % names.length] ?? `#${i}`} ${v}`).join(", ")}\n` : "");
}

try {
  const fields = Object.fromEntries(INPUTS.map((spec) => [spec.name, fieldFor(spec)]));
  for (const spec of INPUTS) {
    const label = document.createElement("label");
    label.append(`${spec.name}: ${spec.type}[${spec.dims.map((d) => d ?? "?")}]`, document.createElement("br"));
    byId("form").append(label, ...fields[spec.name].elements, document.createElement("br"));
  }
  byId("form").append(Object.assign(document.createElement("button"), { textContent: "Run" }));
  const loaded = load({ device: "webgpu" });
  byId("form").addEventListener("submit", async (event) => {
    event.preventDefault(); // before the model is there, too: the page would be loaded again
    try {
      const feeds = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.read()]));
      const model = await loaded, began = performance.now();
      const outputs = await model.run(feeds);
      const took = `${(performance.now() - began).toFixed(1)} ms\n`;
      byId("answer").textContent = took
        + OUTPUTS.map(({ name, columns }) => `${name} ${shown(outputs[name], columns)}`).join("\n");
    } catch (error) {
      byId("answer").textContent = error.message;
    }
  });
  const { device, threads } = await loaded;
  byId("state").textContent = `ready: ${device}, ${threads} thread(s)`;
} catch (error) {
  byId("state").textContent = error.message;
}
