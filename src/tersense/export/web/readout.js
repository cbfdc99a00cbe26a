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

/**
 * The whole step of each row with which codes of so many bits reach all of its y, and its offset:
 * which multiple of the step the code 0 stands for.
 */
export function ranged(channels, rows, windows, bits) {
  const highest = 2 ** (bits - 1) - 1;
  const steps = [];
  const offsets = [];
  for (let row = 0; row < rows; row++) {
    let [least, most] = [Infinity, -Infinity];
    for (const y of channels) {
      for (let k = row * windows; k < (row + 1) * windows; k++) {
        least = Math.min(least, y[k]);
        most = Math.max(most, y[k]);
      }
    }
    const step = wholeStep((most - least) / 2, highest);
    const needless = step === wholeStep(Math.max(-least, most), highest);
    steps.push(step);
    offsets.push(needless ? 0 : Math.floor((rounded(least, step) + rounded(most, step)) / 2));
  }
  return { steps, offsets };
}

/** Codes of y (rows, windows): y/step rounded, less the offset of the row. */
export function quantize(y, { steps, offsets }, windows, bits) {
  const highest = 2 ** (bits - 1) - 1;
  return y.map((value, k) => {
    const row = Math.floor(k / windows);
    const code = rounded(value, steps[row]) - offsets[row];
    return Math.max(-highest, Math.min(highest, code));
  });
}

/** The smallest whole step with which codes up to a highest one reach so far. */
function wholeStep(reach, highest) {
  return Math.max(1, Math.ceil(reach / highest));
}

/** y/step rounded half up, as integers divide. */
function rounded(value, step) {
  return Math.floor((2 * value + step) / (2 * step));
}

/** The deviation of each row's errors, which the network is told. */
export function deviations(rows, noise, steps) {
  return Float32Array.from({ length: rows }, (_, row) => {
    const step = steps.length ? steps[Math.min(row, steps.length - 1)] : 0;
    return Math.sqrt(noise ** 2 + step ** 2 / 12);
  });
}
