// Where to measure more, decided by small integers: `reconstruction/allocation/decision.py`, bit
// for bit. Numbers stay far below 2^53, so that doubles hold them exactly; shifts round down.

const HIDDEN_SHIFT = 6;
const PREDICTION_SHIFT = 7;
const CHANCE = 4;
const SCORE_BITS = 12;
const [LOWEST, HIGHEST] = [-(2 ** (SCORE_BITS - 1)), 2 ** (SCORE_BITS - 1) - 2];

const shifted = (value, by) => Math.floor(value / 2 ** by);
const clipped = (value, low, high) => Math.max(low, Math.min(high, value));
const sum = (values) => values.reduce((all, value) => all + value, 0);

/**
 * How many rows each window takes.
 *
 * y: (rows, windows), whole numbers. known: rows that every window was measured with (open loop), or
 * null where all are known and none is sent yet (encoder).
 */
export function decide(weights, y, windows, budget, known) {
  const rows = known ?? weights.prediction.length;
  const scores = temper(scoreSteps(weights, y, windows, rows));
  return spend(scores, weights.levels, known ?? weights.levels[0], budget);
}

/** Scores of all steps, an array for each, given the first rows of y. */
function scoreSteps(weights, y, windows, rows) {
  const groups = weights.levels.filter((level) => level <= rows).length;
  const of = groups - 1;
  const steps = weights.levels.slice(1).map(() => new Array(windows));
  for (let window = 0; window < windows; window++) {
    const logs = groupLogs(weights, y, windows, window, groups);
    const hidden = weights.first[of].map((row, k) => {
      const told = sum(logs.map((log, g) => row[g] * log)) + weights.first_bias[of][k];
      return Math.max(0, shifted(told, HIDDEN_SHIFT));
    });
    let before = HIGHEST;
    weights.second[of].forEach((row, step) => {
      const told = sum(hidden.map((value, k) => row[k] * value)) + weights.second_bias[of][step];
      before = Math.min(before, clipped(shifted(told, weights.shift[of]), LOWEST, HIGHEST));
      steps[step][window] = before;
    });
  }
  return steps;
}

/** For each group of rows, the logarithm of what the first rows do not tell, in eighths. */
function groupLogs(weights, y, windows, window, groups) {
  const first = weights.prediction[0].map((_, j) => y[j * windows + window]);
  let row = 0;
  return weights.levels.slice(0, groups).map((level) => {
    let rest = 0;
    for (; row < level; row++) {
      const told = sum(weights.prediction[row].map((c, j) => c * first[j]));
      rest += Math.abs(y[row * windows + window] - shifted(told + 2 ** (PREDICTION_SHIFT - 1), PREDICTION_SHIFT));
    }
    const value = Math.max(rest, 1);
    const place = 31 - Math.clz32(value);
    return 8 * place + (shifted(8 * value, place) & 7);
  });
}

/** Draw scores to the mean of each step, the more the less they differ. */
function temper(scores) {
  const windows = scores[0].length;
  const means = scores.map((step) => Math.floor(sum(step) / windows));
  const apart = scores.map((step, k) => step.map((score) => score - means[k]));
  const differ = sum(apart.map((step) => sum(step.map(Math.abs))));
  const share = clipped(Math.floor(differ / (windows * scores.length)) - CHANCE, 0, 8);
  const tempered = apart.map((step, k) => step.map((score) => means[k] + shifted(share * score, 3)));
  return tempered.map((step, k) => step.map((_, n) => Math.min(...tempered.slice(0, k + 1).map((s) => s[n]))));
}

/** Take the steps with the highest scores until the budget is spent. */
function spend(scores, levels, start, budget) {
  const bounds = levels.map((level) => Math.max(level, start));
  const limited = scores.map((step) => step.map((score) => clipped(score, LOWEST, HIGHEST)));

  function taken(threshold) {
    return limited[0].map((_, n) => {
      let k = 0;
      while (k < limited.length && (limited[k][n] >= threshold || bounds[k + 1] === start)) k++;
      return bounds[k];
    });
  }

  let threshold = LOWEST;
  if (sum(taken(threshold)) <= budget) return taken(threshold);
  for (let bit = SCORE_BITS - 1; bit >= 0; bit--) {
    if (sum(taken(threshold + 2 ** bit - 1)) > budget) threshold += 2 ** bit;
  }
  const counts = taken(threshold);
  const growth = taken(threshold - 1).map((more, n) => more - counts[n]);
  const shared = shareOut(growth, budget - sum(counts));
  return counts.map((count, n) => count + shared[n]);
}

/** Share out what is left: to all the same, at most their growth, and one more to the first. */
function shareOut(growth, left) {
  const parts = (part) => growth.map((most) => Math.min(most, part));
  let part = 0;
  for (let bit = 31 - Math.clz32(Math.max(...growth)); bit >= 0; bit--) {
    if (sum(parts(part + 2 ** bit)) <= left) part += 2 ** bit;
  }
  const shared = parts(part);
  let rest = left - sum(shared);
  for (let n = 0; n < growth.length && rest > 0; n++) {
    if (growth[n] > part) {
      shared[n]++;
      rest--;
    }
  }
  return shared;
}
