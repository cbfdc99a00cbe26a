// All that takes time, beside the page: sense, decide, write the file, reconstruct.

import { decide, openLoop } from "./decision.js";
import { Network } from "./network.js";
import { deviations, disturb, quantize, ranged } from "./readout.js";
import { Camera } from "./sensing.js";
import { encode } from "./tsm.js";

const SEED = 0; // the same noise every time
let latest = 0; // the number of the newest wish; older ones are given up
let camera = null;
const networks = {};
let running = Promise.resolve(); // a network does one thing at a time

self.onmessage = async ({ data: wish }) => {
  latest = wish.number;
  const say = (kind, more, transfer) => self.postMessage({ number: wish.number, kind, ...more }, transfer);
  try {
    camera ??= new Camera(await (await fetch(new URL("camera.json", import.meta.url))).json());
    const taken = await measure(wish);
    say("measured", taken.shown);
    running = running.catch(() => {}).then(() => reconstruct(wish, taken, say));
    await running;
  } catch (error) {
    delete networks[wish.compute];
    say("failed", { words: String(error?.message ?? error) });
  }
};

/** Sense an image as a camera of this mode does, and write the file. */
async function measure({ channels, height, width, rows: mean, mode, bits, noise }) {
  const began = performance.now();
  const grid = camera.grid(height, width);
  const windows = grid[0] * grid[1];
  const rows = mode === "uniform" ? mean : camera.rows;
  const exact = channels.map((channel) => camera.sense(channel, height, width, rows));
  const seconds = (performance.now() - began) / 1000;
  const noisy = exact.map((y, channel) => disturb(y, noise, SEED + channel));
  const converter = bits ? ranged(noisy, rows, windows, bits) : { steps: [], offsets: [] };
  const { steps, offsets } = converter;
  let codes = bits ? noisy.map((y) => quantize(y, converter, windows, bits)) : noisy;
  const stood = (code, k) => (bits ? (code + offsets[Math.floor(k / windows)]) * steps[Math.floor(k / windows)] : code);
  let counts = null;
  if (mode !== "uniform") {
    counts = decideAll(codes.map((y) => y.map(stood)), grid, mean, mode);
    codes = codes.map((y) => y.map((value, k) => (Math.floor(k / windows) < counts[k % windows] ? value : 0)));
  }
  const header = { height, width, window: camera.window, phi: camera.hash(rows), bits, noise, seed: noise ? SEED : 0, ...converter };
  const file = await encode({ channels: codes, rows, grid, counts }, header);
  const all = counts ?? new Array(windows).fill(mean);
  const values = codes.map((y) => Float32Array.from(y, stood));
  const shown = { file, values: codes, rows, grid, counts: all, adaptive: Boolean(counts), seconds };
  return { values, rows, counts: all, noise: deviations(camera.rows, noise, steps), shown };
}

/** The counts of an adaptive mode; the channels of a color image share them, by their mean. */
function decideAll(sums, grid, mean, mode) {
  const gray = sums[0].map((_, k) => Math.round(sums.reduce((all, y) => all + y[k], 0) / sums.length));
  return (mode === "open" ? openLoop : decide)(camera.decision, gray, grid, mean * grid[0] * grid[1]);
}

async function reconstruct(wish, { values, rows, counts, noise }, say) {
  const started = performance.now();
  const tell = (words) => say("progress", { words });
  networks[wish.compute] ??= Network.load(camera, wish.compute, tell);
  const network = await networks[wish.compute];
  if (wish.number !== latest) return;
  const began = performance.now();
  for (const [channel, y] of values.entries()) {
    for await (const tile of network.reconstruct(y, rows, counts, noise, wish.height, wish.width)) {
      await new Promise((resume) => setTimeout(resume)); // a newer wish may have come
      if (wish.number !== latest) return;
      const share = (channel + tile.done / tile.of) / values.length;
      const { place, pixels } = tile;
      say("tile", { channel, place, pixels, share }, [pixels.buffer]);
    }
  }
  const now = performance.now();
  const [seconds, loading] = [(now - began) / 1000, (began - started) / 1000];
  say("done", { seconds, loading, engine: network.words, threads: network.threads });
}
