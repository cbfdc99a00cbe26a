// SHA-256, because browsers offer theirs to encrypted pages only (FIPS 180-4).

// The first 32 bits of the fractional parts of the cube (or square) roots of the first primes.
function rootBits(count, power) {
  const found = [];
  for (let n = 2; found.length < count; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) prime &&= n % d !== 0;
    const root = n ** power;
    if (prime) found.push(((root - Math.floor(root)) * 2 ** 32) | 0);
  }
  return found;
}

const CONSTANTS = Int32Array.from(rootBits(64, 1 / 3));
const START = rootBits(8, 1 / 2);
const turn = (x, by) => (x >>> by) | (x << (32 - by));

/** The hash of bytes, in 64 hexadecimal digits. */
export function sha256(bytes) {
  const padded = new DataView(new ArrayBuffer(Math.ceil((bytes.length + 9) / 64) * 64));
  new Uint8Array(padded.buffer).set(bytes);
  padded.setUint8(bytes.length, 0x80);
  padded.setUint32(padded.byteLength - 8, Math.floor(bytes.length / 2 ** 29));
  padded.setUint32(padded.byteLength - 4, bytes.length * 8);
  const state = Int32Array.from(START);
  const words = new Int32Array(64);
  for (let at = 0; at < padded.byteLength; at += 64) {
    for (let k = 0; k < 16; k++) words[k] = padded.getInt32(at + 4 * k);
    for (let k = 16; k < 64; k++) {
      const [a, b] = [words[k - 15], words[k - 2]];
      const low = turn(a, 7) ^ turn(a, 18) ^ (a >>> 3);
      const high = turn(b, 17) ^ turn(b, 19) ^ (b >>> 10);
      words[k] = words[k - 16] + low + words[k - 7] + high;
    }
    compress(state, words);
  }
  return [...state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

function compress(state, words) {
  let [a, b, c, d, e, f, g, h] = state;
  for (let k = 0; k < 64; k++) {
    const chosen = (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g));
    const first = (h + chosen + CONSTANTS[k] + words[k]) | 0;
    const most = (a & b) ^ (a & c) ^ (b & c);
    const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + most) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, k) => (state[k] += word));
}
