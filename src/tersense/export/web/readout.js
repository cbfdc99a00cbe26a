// What a sensor makes of exact measurements: Gaussian noise, then codes of few bits.

const LARGEST = 2 ** 31 - 1;

/** Add noise of a deviation and round: integers again. Python draws other numbers of this kind. */
export function disturb(y, deviation, seed = 0) {
  if (!deviation) return y;
  const normal = normals(seed);
  return y.map((value) => {
    const noisy = Math.round(value + deviation * normal());
    return Math.max(-LARGEST, Math.min(LARGEST, noisy));
  });
}

/** Standard normal numbers, by Box and Muller's method. */
function normals(seed) {
  let state = seed;
  function uniform() {
    state = (state + 0x6d2b79f5) | 0; // mulberry32
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** The whole step of each row with which codes of so many bits reach its largest |y|. */
export function rangedSteps(channels, rows, windows, bits) {
  const highest = 2 ** (bits - 1) - 1;
  return Array.from({ length: rows }, (_, row) => {
    let reached = 0;
    for (const y of channels) {
      for (let k = row * windows; k < (row + 1) * windows; k++) reached = Math.max(reached, Math.abs(y[k]));
    }
    return Math.max(1, Math.ceil(reached / highest));
  });
}

/** Codes of y (rows, windows): y/step rounded half up, as integers divide. */
export function quantize(y, steps, windows, bits) {
  const highest = 2 ** (bits - 1) - 1;
  return y.map((value, k) => {
    const step = steps[Math.floor(k / windows)];
    const code = Math.floor((2 * value + step) / (2 * step));
    return Math.max(-highest, Math.min(highest, code));
  });
}

/** The deviation of each row's errors, which the network is told. */
export function deviations(rows, noise, steps) {
  return Float32Array.from({ length: rows }, (_, row) => {
    const step = steps.length ? steps[Math.min(row, steps.length - 1)] : 0;
    return Math.sqrt(noise ** 2 + step ** 2 / 12);
  });
}
