// The page itself: what people choose, and what they are shown.

import { countScale, paintBar, paintCounts, paintError, paintImage, paintMeasurements, paintPatterns, psnr, ssim } from "./figures.js";
import { readImage, toGray } from "./pixels.js";
import { encodePng } from "./png.js";
import { Camera } from "./sensing.js";

const $ = (selector) => document.querySelector(selector);
const MODES = {
  uniform: "the same number of measurements in every window",
  open: "40 % of them uniformly; then the sensor decides, at 70 % again, where more pays",
  encoder: "the sensor computes all sums and keeps those that tell most",
};

const camera = new Camera(await (await fetch("camera.json")).json());
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const form = $("#choices");
let image = null; // { name, channels, height, width, note } as it was picked
let job = null; // what the worker is asked for, and what came of it
let number = 0;
let picks = 0;

function choices() {
  const said = Object.fromEntries(new FormData(form));
  return {
    rows: camera.rowsAt(said.rate / 100),
    mode: said.mode,
    bits: Number(said.bits),
    noise: Number(said.noise),
    compute: said.compute,
    gray: said.colors === "gray",
  };
}

function start() {
  const percent = $("#rate");
  percent.min = Math.max(1, Math.ceil((100 * camera.lowest) / camera.pixels - 1e-9));
  percent.max = Math.floor((100 * camera.rows) / camera.pixels + 1e-9);
  percent.setAttribute("value", Math.round((100 * camera.usual) / camera.pixels));
  describeChoices();
  percent.addEventListener("input", describeChoices);
  form.addEventListener("change", (event) => {
    describeChoices();
    if (event.target.name === "view") showView();
    else if (event.target.name) work(); // what has none is no choice of a camera
  });
  $("#file").addEventListener("change", ({ target }) => {
    pick(target.files[0]);
    target.value = ""; // so that the same file can be chosen again
  });
  for (const button of document.querySelectorAll("[data-sample]")) {
    button.addEventListener("click", () => pick(loadSample(button.dataset.sample), button));
  }
  listenForDrops();
  $("#divider").addEventListener("input", (event) => $("#compare").style.setProperty("--at", `${event.target.value}%`));
  $("#tsm").addEventListener("click", () => save(new Blob([job.file]), `${image.name}.tsm`));
  $("#png").addEventListener("click", async () => {
    save(await encodePng(job.pixels, job.width, job.height), `${image.name}-reconstruction.png`);
  });
}

function listenForDrops() {
  const drop = $("#drop");
  const over = (event) => {
    event.preventDefault();
    drop.classList.toggle("over", event.type === "dragover");
  };
  for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, over);
  document.addEventListener("drop", (event) => pick(event.dataTransfer.files[0]));
}

function describeChoices() {
  const { rows, mode } = choices();
  $("#percent").textContent = `${$("#rate").value} %`;
  $("#rate-words").textContent = `${rows} measurements for every ${camera.window}×${camera.window} pixels`;
  $("#mode-words").textContent = MODES[mode];
}

async function loadSample(path) {
  const blob = await (await fetch(path)).blob();
  return new File([blob], path.split("/").pop());
}

/** Take an image that is there or will be; what was shown of the one before goes. */
async function pick(coming, button = null) {
  if (!coming) return;
  const mine = ++picks;
  [image, job] = [null, null];
  for (const other of document.querySelectorAll("[data-sample]")) other.setAttribute("aria-pressed", other === button);
  clear();
  try {
    const file = await coming;
    const read = await readImage(file);
    if (mine !== picks) return; // another was picked meanwhile
    image = { ...read, name: file.name.replace(/\.[^.]*$/, "") };
    work();
  } catch (error) {
    if (mine === picks) fail(error.message);
  }
}

function clear() {
  for (const part of ["#shown", "#sheets", "#note", "#failed", "#progress"]) $(part).hidden = true;
  $("#figures").innerHTML = "";
  $("#cards").innerHTML = "";
  for (const button of ["#tsm", "#png"]) $(button).disabled = true;
}

function fail(words) {
  clear();
  $("#failed").hidden = false;
  $("#failed").textContent = `That did not work: ${words}`;
}

/** Ask the worker for what is chosen now; earlier wishes are forgotten. */
function work() {
  if (!image) return;
  const { gray, ...wish } = choices();
  const channels = gray ? toGray(image.channels) : image.channels;
  const { height, width } = image;
  const blank = channels.map(() => new Float32Array(height * width).fill(128));
  job = { number: ++number, ...wish, channels, height, width, estimate: blank };
  worker.postMessage({ number, ...wish, channels, height, width });
  $("#failed").hidden = true;
  $("#note").textContent = image.note;
  $("#note").hidden = !image.note;
  for (const button of ["#tsm", "#png"]) $(button).disabled = true;
  progress("Measuring", null);
}

worker.onmessage = ({ data: { number: of, kind, ...news } }) => {
  if (of !== job?.number) return;
  const react = { measured, progress: ({ words }) => progress(words, null), tile, done, failed: ({ words }) => fail(words) };
  react[kind](news);
};
worker.onerror = (event) => fail(event.message ?? "the worker cannot be started; reload the page");

function progress(words, share) {
  const bar = $("#progress progress");
  $("#progress").hidden = false;
  if (share === null) bar.removeAttribute("value");
  else bar.value = share;
  $("#progress [role=status]").textContent = words;
}

function measured(news) {
  Object.assign(job, news);
  const { width, height, channels } = job;
  $("#shown").hidden = $("#sheets").hidden = false;
  $("#compare").style.setProperty("--ratio", width / height);
  paintImage($("#original"), channels, width, height);
  paintPatterns($("#patterns"), camera, job.rows);
  paintMeasurements($("#measured"), job.values, job.counts, job.grid);
  $("#tsm").disabled = false;
  showView();
  showFigures();
}

function tile({ channel, place, pixels, share }) {
  for (let line = 0; line < place.height; line++) {
    const begin = (place.top + line) * job.width + place.left;
    job.estimate[channel].set(pixels.subarray(line * place.width, (line + 1) * place.width), begin);
  }
  progress(`Reconstructing, ${Math.round(100 * share)} %`, share);
  showView();
}

function done(news) {
  job.done = news;
  job.pixels = job.estimate.map((values) => Uint8ClampedArray.from(values)); // rounds and clips
  $("#progress").hidden = true;
  $("#png").disabled = false;
  showView();
  showFigures();
}

/** Show what was chosen right of the slider. */
function showView() {
  if (!job?.file) return;
  const view = new FormData(form).get("view");
  const { estimate, channels, counts, grid, width, height } = job;
  const canvas = $("#right");
  if (view === "image") paintImage(canvas, estimate.map((values) => Uint8ClampedArray.from(values)), width, height);
  if (view === "error") paintError(canvas, estimate, channels, width, height);
  if (view === "counts") paintCounts(canvas, channels, counts, grid, camera.window, width, height);
  canvas.setAttribute("aria-label", { image: "reconstruction", error: "error", counts: "counts per window" }[view]);
  for (const caption of document.querySelectorAll("[data-view]")) caption.hidden = caption.dataset.view !== view;
  $("#bar").hidden = view === "image";
  if (view !== "image") {
    const ticks = paintBar($("#bar canvas"), view === "counts" ? countScale(counts) : null);
    $("#bar ol").innerHTML = ticks.map((tick) => `<li>${tick}</li>`).join("");
  }
}

/** Say how good the image is, from how little, and what it took. */
function showFigures() {
  const { channels, pixels, counts, width, height, file, adaptive, done: end } = job;
  const colors = channels.length;
  const taken = counts.reduce((all, count) => all + count, 0) * colors;
  const each = colors > 1 ? "of each color, " : "";
  const quality = {
    PSNR: [pixels ? `${psnr(pixels, channels).toFixed(2)} dB` : "…", `${width}×${height} pixels`],
    SSIM: [pixels ? ssim(pixels, channels, height, width).toFixed(4) : "…", "1 would be the same"],
    "Measurements per pixel": [(taken / (width * height * colors)).toFixed(3), `${each}${taken.toLocaleString("en")} in all`],
  };
  $("#figures").innerHTML = list("figures", quality);
  const payload = file.length - 8 - new DataView(file.buffer).getUint32(0, true);
  const computed = counts.map((count) => (job.mode === "encoder" ? job.rows : count));
  const additions = computed.reduce((all, count) => all + camera.additions(count), 0) * colors;
  const products = computed.reduce((all, count) => all + count * camera.pixels, 0) * colors;
  const where = adaptive ? `${Math.min(...counts)} to ${Math.max(...counts)} per window` : `${counts[0]} in every window`;
  $("#cards").innerHTML = list("cards", {
    Arithmetic: [`${short(additions)} additions`, `dense: ${short(products)} multiply-adds`],
    Matrix: [bytes(camera.bytes.sparse), `dense float: ${bytes(camera.bytes.dense)}`],
    Readout: [bytes(payload), `${((8 * payload) / (width * height * colors)).toPrecision(2)} bits per pixel; the image: ${bytes(width * height * colors)}`],
    "Sensed in": [time(job.seconds), where],
    "Reconstructed in": [end ? time(end.seconds) : "…", end ? `${engine(end)}; ${short(camera.weights)} weights` : ""],
  });
}

/** What computed; a page that is not isolated may not use more threads, and says so. */
function engine({ engine: words, threads }) {
  return threads === 1 && !crossOriginIsolated ? `${words} (this host allows one)` : words;
}

function list(kind, facts) {
  const items = Object.entries(facts).map(([name, [value, beside]]) => `<div><dt>${name}</dt><dd>${value}</dd><small>${beside}</small></div>`);
  return `<dl class="${kind}">${items.join("")}</dl>`;
}

function short(count) {
  for (const [size, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (count >= size) return `${Number((count / size).toPrecision(3))}${unit}`;
  }
  return String(count);
}

function bytes(count) {
  return count >= 2 ** 20 ? `${(count / 2 ** 20).toFixed(1)} MiB` : `${(count / 1024).toFixed(1)} KiB`;
}

function time(seconds) {
  return seconds >= 1 ? `${seconds.toFixed(1)} s` : `${Number((1000 * seconds).toPrecision(3))} ms`;
}

function save(blob, name) {
  const link = document.createElement("a");
  Object.assign(link, { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

start();
