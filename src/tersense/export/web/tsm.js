// The measurement file (.tsm), as `measurements/tsm.py` writes it: safetensors with a header.

import { sha256 } from "./sha256.js";

// In the order of safetensors, which writes the last ones first.
const TYPES = { U8: Uint8Array, I8: Int8Array, I16: Int16Array, U16: Uint16Array, I32: Int32Array };
const BLANK = "0".repeat(64);

/**
 * The content of a file.
 *
 * y: { channels: [Int32Array (rows, h, w), …], rows, grid: [h, w], counts: array of h·w or null }
 * header: { height, width, window, phi, bits, noise, seed, steps, offsets }
 */
export async function encode(y, header) {
  const { bits, steps } = header;
  const offsets = header.offsets.some(Boolean) ? header.offsets : [];
  const tensors = {};
  let values = y.counts ? [toStream(y)] : y.channels;
  if (y.counts) tensors.counts = ["U8", await deflate(Uint16Array.from(y.counts))]; // lowest byte first
  if (steps.length) tensors.steps = Math.max(...steps) < 2 ** 16 ? ["U16", steps] : ["I32", steps];
  if (offsets.length) tensors.offsets = [smallestType([offsets]), offsets];
  if (bits) {
    tensors.y = ["U8", pack(joined(values), bits)];
  } else {
    const shape = [y.rows, ...y.grid];
    const whole = y.channels.length > 1 ? [y.channels.length, ...shape] : shape;
    tensors.y = [smallestType(y.channels), joined(values), y.counts ? undefined : whole];
  }
  return written(tensors, describe(y, header, offsets.length > 0));
}

/** Put header and tensors together; the checksum covers every byte, itself taken as zeros. */
function written(tensors, described) {
  const size = ([type]) => TYPES[type].BYTES_PER_ELEMENT;
  const place = (name) => Object.keys(TYPES).indexOf(tensors[name][0]);
  const names = Object.keys(tensors).sort((a, b) => place(b) - place(a) || (a < b ? -1 : 1));
  const outer = { __metadata__: { tersense: described } };
  let end = 0;
  for (const name of names) {
    const [dtype, values, shape] = tensors[name];
    const begin = end;
    end += values.length * size(tensors[name]);
    outer[name] = { dtype, shape: shape ?? [values.length], data_offsets: [begin, end] };
  }
  let text = JSON.stringify(outer);
  text = text.padEnd(Math.ceil(text.length / 8) * 8);
  const content = new Uint8Array(8 + text.length + end);
  new DataView(content.buffer).setUint32(0, text.length, true);
  content.set(new TextEncoder().encode(text), 8);
  for (const name of names) {
    const [dtype, values] = tensors[name];
    const bytes = new Uint8Array(TYPES[dtype].from(values).buffer);
    content.set(bytes, 8 + text.length + outer[name].data_offsets[0]);
  }
  content.set(new TextEncoder().encode(sha256(content)), 8 + text.indexOf(BLANK));
  return content;
}

/** The header as Python's json.dumps(sort_keys=True) writes it. */
function describe(y, header, hasOffsets) {
  const real = (value) => (Number.isInteger(value) ? value.toFixed(1) : String(value));
  const said = {
    bits: header.bits,
    checksum: `"sha256:${BLANK}"`,
    height: header.height,
    mode: y.channels.length > 1 ? '"RGB"' : '"L"',
    noise: real(header.noise),
    patterns: y.rows,
    phi: `"${header.phi}"`,
    seed: header.seed,
    step: real(1),
    stride: header.window,
    version: hasOffsets ? 4 : header.bits || y.counts ? 2 : 1,
    width: header.width,
    window: header.window,
  };
  if (header.bits) said.percentile = real(100);
  const entries = Object.keys(said).sort().map((key) => `"${key}": ${said[key]}`);
  return `{${entries.join(", ")}}`;
}

/** What was measured: window after window, the first m_b values of each. */
function toStream({ channels, counts, rows }) {
  const windows = counts.length;
  const stream = [];
  for (const values of channels) {
    for (let n = 0; n < windows; n++) {
      for (let row = 0; row < Math.min(rows, counts[n]); row++) stream.push(values[row * windows + n]);
    }
  }
  return stream;
}

/** Codes of B bits as a stream of bits, lowest first, in two's complement. */
function pack(codes, bits) {
  const stream = new Uint8Array(Math.ceil((codes.length * bits) / 8));
  codes.forEach((code, k) => {
    for (let b = 0; b < bits; b++) {
      if ((code >> b) & 1) stream[(k * bits + b) >> 3] |= 1 << ((k * bits + b) & 7);
    }
  });
  return stream;
}

function joined(arrays) {
  const all = new Int32Array(arrays.reduce((length, values) => length + values.length, 0));
  let at = 0;
  for (const values of arrays) {
    all.set(values, at);
    at += values.length;
  }
  return all;
}

/** The narrowest type that holds all values. */
function smallestType(channels) {
  let reach = 0; // −128 fits 8 bits, 128 does not
  for (const values of channels) {
    for (const value of values) reach = Math.max(reach, value < 0 ? -value - 1 : value);
  }
  return reach < 2 ** 7 ? "I8" : reach < 2 ** 15 ? "I16" : "I32";
}

/** Compress an array of numbers as zlib does. */
export async function deflate(numbers) {
  const bytes = new Blob([numbers]).stream().pipeThrough(new CompressionStream("deflate"));
  return new Uint8Array(await new Response(bytes).arrayBuffer());
}
