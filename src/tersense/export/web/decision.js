// Where to measure more, decided by small integers: `reconstruction/allocation/decision.py`, bit
// for bit. Numbers stay far below 2^53, so that doubles hold them exactly; shifts round down.

const HIDDEN_SHIFT = 6;
const PREDICTION_SHIFT = 7;
const [ENCODER_TRUST, OPEN_TRUST, WHOLE_TRUST] = [[1, 6], [2, 4], [3, 3]]; // see temper
const SCORE_BITS = 12;
const [LOWEST, HIGHEST] = [-(2 ** (SCORE_BITS - 1)), 2 ** (SCORE_BITS - 1) - 2];
const TAKEN = HIGHEST + 1; // instead of a score: the step is measured already

const shifted = (value, by) => Math.floor(value / 2 ** by);
const clipped = (value, low, high) => Math.max(low, Math.min(high, value));
const sum = (values) => values.reduce((all, value) => all + value, 0);

/** How many rows each window takes if the sensor decides as it measures. y: (rows, windows). */
export function openLoop(weights, y, grid, budget) {
  const { levels } = weights;
  const windows = grid[0] * grid[1];
  const uniform = levels.findLast((level) => level <= (4 * budget) / (10 * windows)) ?? levels[0];
  const part = Math.max(Math.floor((7 * budget) / 10), uniform * windows);
  const counts = decide(weights, y, grid, part, new Array(windows).fill(uniform), true);
  return decide(weights, y, grid, budget, counts);
}

/**
 * How many rows each window takes.
 *
 * y: (rows, windows), whole numbers. grid: windows down and across. counts: levels that the windows
 * were measured up to (open loop), or null where all rows are known and none is sent yet (encoder).
 * whole: take whole steps only.
 */
export function decide(weights, y, grid, budget, counts = null, whole = false) {
  const { levels } = weights;
  const scores = scoreSteps(weights, y, grid, counts);
  if (counts) scores.forEach((step, k) => counts.forEach((count, n) => { if (levels[k + 1] <= count) step[n] = TAKEN; }));
  const trust = !counts ? ENCODER_TRUST : whole ? WHOLE_TRUST : OPEN_TRUST;
  return spend(temper(scores, ...trust), levels, budget, whole);
}

/** Scores of all steps, an array for each, given the first `known` rows of each window, or all. */
function scoreSteps(weights, y, [height, width], known) {
  const windows = height * width;
  const steps = weights.levels.slice(1).map(() => new Array(windows));
  const rows = known ?? new Array(windows).fill(weights.prediction.length);
  const logs = rows.map((count, window) => {
    const groups = weights.levels.filter((level) => level <= count).length;
    return groupLogs(weights, y, windows, window, groups);
  });
  for (let window = 0; window < windows; window++) {
    const own = logs[window];
    const around = known ? [own, own, own, own] : neighbors(window, height, width).map((n) => logs[n]);
    const of = own.length - 1;
    const hidden = weights.first[of].map((row, k) => {
      let told = sum(own.map((log, g) => row[g] * log)) + weights.first_bias[of][k];
      if (own.length === weights.levels.length) {
        told += sum(weights.around[k].map((weight, g) => weight * sum(around.map((of) => of[g]))));
      }
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

/** The windows above, below, left and right; itself beyond the border. */
function neighbors(window, height, width) {
  const [row, column] = [Math.floor(window / width), window % width];
  return [
    row > 0 ? window - width : window,
    row < height - 1 ? window + width : window,
    column > 0 ? window - 1 : window,
    column < width - 1 ? window + 1 : window,
  ];
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

/** Draw scores to the mean of each step, the more the less they differ; steps that are taken stay so. */
function temper(scores, chance, most) {
  const undecided = scores.map((step) => step.filter((score) => score < TAKEN));
  const means = undecided.map((step) => Math.floor(sum(step) / Math.max(step.length, 1)));
  const differ = sum(undecided.map((step, k) => sum(step.map((score) => Math.abs(score - means[k])))));
  const number = sum(undecided.map((step) => step.length));
  const share = clipped(shifted(Math.floor(differ / Math.max(number, 1)) - chance, 1), 0, most);
  const drawn = (score, k) => (score < TAKEN ? means[k] + shifted(share * (score - means[k]), 3) : TAKEN);
  const tempered = scores.map((step, k) => step.map((score) => drawn(score, k)));
  return tempered.map((step, k) => step.map((_, n) => Math.min(...tempered.slice(0, k + 1).map((s) => s[n]))));
}

/** Take the steps with the highest scores until the budget is spent. */
function spend(scores, levels, budget, whole) {
  function taken(threshold) {
    return scores[0].map((_, n) => levels[scores.filter((step) => step[n] >= threshold).length]);
  }

  let threshold = LOWEST;
  for (let bit = SCORE_BITS - 1; bit >= 0; bit--) {
    if (sum(taken(threshold + 2 ** bit - 1)) > budget) threshold += 2 ** bit;
  }
  const counts = taken(threshold);
  if (whole) return counts;
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
