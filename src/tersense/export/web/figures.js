// How close two images are, and what measurements look like: the figures of the Python package.

const HEAT = [[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];
const [FEW, UNIFORM, MANY] = [[24, 78, 190], [238, 238, 238], [226, 84, 8]];
const [MINUS, ZERO, PLUS] = [[33, 92, 168], [235, 235, 235], [214, 96, 32]];
const FULL_SCALE = 64; // gray levels: larger errors look the same
const OVER = 0.55; // share of the colors of counts; the rest is the image

/** Peak signal-to-noise ratio in dB, of all channels together. */
export function psnr(channels, originals) {
  let [error, count] = [0, 0];
  channels.forEach((pixels, c) => {
    pixels.forEach((value, k) => (error += (value - originals[c][k]) ** 2));
    count += pixels.length;
  });
  return 10 * Math.log10(255 ** 2 / (error / count));
}

/** Structural similarity (Wang et al. 2004), the mean over channels; NaN below 11×11 pixels. */
export function ssim(channels, originals, height, width) {
  const each = channels.map((pixels, c) => similarity(pixels, originals[c], height, width));
  return each.reduce((all, one) => all + one, 0) / each.length;
}

function similarity(a, b, height, width) {
  if (Math.min(height, width) < 11) return NaN;
  const product = (x, y) => blur(Float64Array.from(x, (value, k) => value * y[k]), height, width);
  const [meanA, meanB] = [blur(Float64Array.from(a), height, width), blur(Float64Array.from(b), height, width)];
  const [aa, bb, ab] = [product(a, a), product(b, b), product(a, b)];
  const [c1, c2] = [(0.01 * 255) ** 2, (0.03 * 255) ** 2];
  let all = 0;
  meanA.forEach((p, k) => {
    const q = meanB[k];
    const top = (2 * p * q + c1) * (2 * (ab[k] - p * q) + c2);
    all += top / ((p * p + q * q + c1) * (aa[k] - p * p + (bb[k] - q * q) + c2));
  });
  return all / meanA.length;
}

/** Filter by a Gaussian of deviation 1.5, where its 11×11 pixels fit. */
function blur(image, height, width) {
  const taps = Array.from({ length: 11 }, (_, k) => Math.exp(-0.5 * ((k - 5) / 1.5) ** 2));
  const all = taps.reduce((sum, tap) => sum + tap, 0);
  const along = (source, lines, length, step, stride) => {
    const result = new Float64Array(lines * (length - 10));
    for (let line = 0, at = 0; line < lines; line++) {
      for (let k = 0; k < length - 10; k++, at++) {
        let sum = 0;
        for (let t = 0; t < 11; t++) sum += taps[t] * source[line * stride + (k + t) * step];
        result[at] = sum / all;
      }
    }
    return result;
  };
  const across = along(image, height, width, 1, width); // (H, W − 10)
  return along(across, width - 10, height, width - 10, 1);
}

/** Colors between stops, share from 0 to 1. */
function between(stops, share) {
  const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const k = Math.min(stops.length - 2, Math.floor(place));
  return stops[k].map((from, c) => from + (stops[k + 1][c] - from) * (place - k));
}

/** Fill a canvas; color gives [r, g, b] or [r, g, b, a] of a place. */
export function paint(canvas, width, height, color) {
  Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  for (let k = 0; k < width * height; k++) {
    const [r, g, b, a] = color(k);
    image.data.set([Math.round(r), Math.round(g), Math.round(b), a ?? 255], 4 * k);
  }
  canvas.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0);
}

/** Draw channels (one, or three) as they are. */
export function paintImage(canvas, channels, width, height) {
  const [r, g, b] = channels.length > 1 ? channels : Array(3).fill(channels[0]);
  paint(canvas, width, height, (k) => [r[k], g[k], b[k]]);
}

/** Draw the absolute error as heat. */
export function paintError(canvas, channels, originals, width, height) {
  paint(canvas, width, height, (k) => {
    const error = channels.reduce((all, pixels, c) => all + Math.abs(pixels[k] - originals[c][k]), 0);
    return between(HEAT, error / channels.length / FULL_SCALE);
  });
}

/** What the colors of counts mean; small differences shall not look large. */
export function countScale(counts) {
  const uniform = Math.round(counts.reduce((all, count) => all + count, 0) / counts.length);
  const low = Math.min(...counts, Math.floor(uniform / 2));
  return [low, uniform, Math.max(...counts, 2 * uniform)].map((count) => Math.max(1, count));
}

export function countTicks([low, uniform, high]) {
  return [low, Math.round(Math.sqrt(low * uniform)), uniform, Math.round(Math.sqrt(uniform * high)), high];
}

function countColor(count, [low, uniform, high]) {
  const log = Math.log(Math.max(1, count));
  const [a, b, c] = [low, uniform, high].map(Math.log);
  return log < b ? between([FEW, UNIFORM], (log - a) / (b - a || 1)) : between([UNIFORM, MANY], (log - b) / (c - b || 1));
}

/** Draw counts per window over the image in gray, with their numbers where there is room. */
export function paintCounts(canvas, originals, counts, [, w], side, width, height) {
  const scale = countScale(counts);
  const colors = counts.map((count) => countColor(count, scale));
  paint(canvas, width, height, (k) => {
    const [x, y] = [k % width, Math.floor(k / width)];
    const gray = originals.reduce((all, pixels) => all + pixels[k], 0) / originals.length;
    const color = colors[Math.floor(y / side) * w + Math.floor(x / side)];
    return color.map((part) => OVER * part + (1 - OVER) * gray);
  });
  if (side >= 24) writeCounts(canvas, counts, w, side, width, height);
}

/** Write each count into what is seen of its window, dark or light as its background asks. */
function writeCounts(canvas, counts, w, side, width, height) {
  const pen = canvas.getContext("2d");
  Object.assign(pen, { font: `${Math.round(0.36 * side)}px system-ui, sans-serif`, textAlign: "center", textBaseline: "middle" });
  counts.forEach((count, n) => {
    const [left, top] = [(n % w) * side, Math.floor(n / w) * side];
    const [across, down] = [Math.min(side, width - left), Math.min(side, height - top)];
    if (across < side - 4 || down < side / 2) return;
    const seen = pen.getImageData(left, top, across, down).data;
    const mean = seen.reduce((all, value, k) => (k % 4 < 3 ? all + value : all), 0) / (seen.length * 0.75);
    pen.fillStyle = mean < 120 ? "#fff" : "#1e1e1e";
    pen.fillText(String(count), left + across / 2, top + down / 2);
  });
}

/** Draw a color bar: of errors, or of counts where their scale is given. */
export function paintBar(canvas, scale) {
  const logs = scale && countTicks(scale).map(Math.log);
  paint(canvas, 256, 1, (k) => {
    const place = k / 255;
    if (!scale) return between(HEAT, place);
    const at = Math.min(3, Math.floor(place * 4));
    return countColor(Math.exp(logs[at] + (logs[at + 1] - logs[at]) * (place * 4 - at)), scale);
  });
  return scale ? countTicks(scale) : [0, 1, 2, 3, 4].map((k) => (FULL_SCALE * k) / 4);
}

/** Lay small images out in rows, 8 wide and 5 high: color(n, k) of place k in image n. */
function paintSheet(canvas, count, width, height, color) {
  const columns = Math.min(count, Math.max(1, Math.round(Math.sqrt((1.6 * count * height) / width))));
  const [across, down] = [width + 2, height + 2];
  const rows = Math.ceil(count / columns);
  paint(canvas, columns * across - 2, rows * down - 2, (place) => {
    const [x, y] = [place % (columns * across - 2), Math.floor(place / (columns * across - 2))];
    const n = Math.floor(y / down) * columns + Math.floor(x / across);
    if (x % across >= width || y % down >= height || n >= count) return [0, 0, 0, 0];
    return color(n, (y % down) * width + (x % across));
  });
}

/** Draw the first patterns: +1 orange, −1 blue, 0 gray. */
export function paintPatterns(canvas, camera, count) {
  const signs = Array.from({ length: count }, (_, n) => {
    const row = new Int8Array(camera.window ** 2);
    for (const k of camera.plus[n]) row[k] = 1;
    for (const k of camera.minus[n]) row[k] = -1;
    return row;
  });
  paintSheet(canvas, count, camera.window, camera.window, (n, k) => [MINUS, ZERO, PLUS][signs[n][k] + 1]);
}

/** Draw the measurements as a small image for each pattern, on its own scale; gaps are not measured. */
export function paintMeasurements(canvas, channels, counts, [h, w]) {
  const rows = Math.max(...counts);
  const largest = Array.from({ length: rows }, (_, n) => {
    let most = 1;
    for (const y of channels) for (let k = n * h * w; k < (n + 1) * h * w; k++) most = Math.max(most, Math.abs(y[k]));
    return most;
  });
  const scale = Math.max(1, Math.floor(32 / Math.max(h, w)));
  paintSheet(canvas, rows, w * scale, h * scale, (n, k) => {
    const window = Math.floor(k / (w * scale) / scale) * w + Math.floor((k % (w * scale)) / scale);
    if (n >= counts[window]) return [0, 0, 0, 0];
    const shades = channels.map((y) => 127.5 + (127.5 * y[n * h * w + window]) / largest[n]);
    return shades.length > 1 ? shades : Array(3).fill(shades[0]);
  });
}
