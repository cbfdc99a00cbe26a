// Measurements become an image: the network, run tile by tile by ONNX Runtime Web.

const TILE = 8; // windows down and across
const LARGEST = 12; // what fits into so many windows is not cut
const MOST_THREADS = 8;
const TRIAL = 4; // windows down and across of a tile that a graphics processor is tried with
const SLOW = 0.5; // seconds for it; one core of a laptop does not need more

/** Download a file, telling how much of it is there. */
async function download(name, tell) {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) throw new Error(`${name} cannot be loaded (${answer.status}); reload the page`);
  const parts = [];
  let size = 0;
  for (const reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    tell((size += value.length));
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Whether there is a graphics processor that a page may compute on, and not a program for one. */
async function hasGraphics() {
  try {
    const adapter = await navigator.gpu?.requestAdapter();
    return Boolean(adapter) && !(adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter);
  } catch {
    return false;
  }
}

/** A network that is ready to run. */
export class Network {
  /** Load runtime and weights. compute: auto, wasm or webgpu; tell: called with words. */
  static async load(camera, compute, tell) {
    if (compute !== "wasm" && (compute === "webgpu" || (await hasGraphics()))) {
      try {
        const network = await Network.start(camera, "webgpu", tell);
        if (compute === "webgpu" || (await network.trial()) < SLOW) return network;
      } catch (error) {
        if (compute === "webgpu") throw error;
      }
    }
    return Network.start(camera, "wasm", tell);
  }

  static async start(camera, provider, tell) {
    const sizes = {};
    const telling = (name) => (size) => {
      sizes[name] = size;
      const all = Object.values(sizes).reduce((sum, part) => sum + part, 0);
      tell(`Loading the network, once: ${(all / 1e6).toFixed(1)} MB`);
    };
    const [ort, wasm, model] = await Promise.all([
      import(`./ort/ort.${provider}.js`),
      download(`ort/${provider}.wasm`, telling("wasm")),
      download("reconstructor.onnx", telling("model")),
    ]);
    // Threads share memory, which only an isolated page may.
    const threads = self.crossOriginIsolated ? Math.min(MOST_THREADS, navigator.hardwareConcurrency) : 1;
    Object.assign(ort.env.wasm, {
      numThreads: threads,
      wasmBinary: wasm,
      wasmPaths: { mjs: new URL(`ort/${provider}.js`, import.meta.url).href },
    });
    ort.env.logLevel = "error";
    tell("Starting the network");
    const session = await ort.InferenceSession.create(model, { executionProviders: [provider] });
    return new Network(camera, ort, session, provider === "wasm" ? threads : 0);
  }

  constructor(camera, ort, session, threads) {
    Object.assign(this, { camera, ort, session, threads });
  }

  /** How many seconds a small tile takes, once everything is compiled. */
  async trial() {
    const [row, noise] = [{ begin: 0, end: TRIAL, first: 0, last: TRIAL }, new Float32Array(this.camera.rows)];
    const size = TRIAL * this.camera.window;
    const counts = new Array(TRIAL ** 2).fill(this.camera.rows);
    const y = new Float32Array(this.camera.rows * TRIAL ** 2);
    const tile = tileInputs(this.camera.rows, y, this.camera.rows, counts, [TRIAL, TRIAL], row, row);
    await this.run(tile, noise, this.place(row, row, size, size));
    const began = performance.now();
    await this.run(tile, noise, this.place(row, row, size, size));
    return (performance.now() - began) / 1000;
  }

  /** What computes, in words. */
  get words() {
    if (!this.threads) return "WebGPU";
    return `WebAssembly, ${this.threads} thread${this.threads > 1 ? "s" : ""}`;
  }

  /**
   * Reconstruct one channel; yields after every tile { done, of, place, pixels }.
   *
   * y: Float32Array (rows, h, w) in gray levels; counts: rows of each window; noise: deviations.
   */
  async *reconstruct(y, rows, counts, noise, height, width) {
    const [h, w] = this.camera.grid(height, width);
    const [down, across] = [cut(h, this.camera.halo), cut(w, this.camera.halo)];
    let done = 0;
    for (const row of down) {
      for (const column of across) {
        const place = this.place(row, column, height, width);
        const tile = tileInputs(this.camera.rows, y, rows, counts, [h, w], row, column);
        const pixels = await this.run(tile, noise, place);
        yield { done: ++done, of: down.length * across.length, place, pixels };
      }
    }
  }

  /** The pixels of a tile in the image, and how it lies among those that it is made from. */
  place(row, column, height, width) {
    const side = this.camera.window;
    const end = (windows, size) => Math.min(windows * side, size);
    return {
      top: row.begin * side,
      left: column.begin * side,
      height: end(row.end, height) - row.begin * side,
      width: end(column.end, width) - column.begin * side,
      above: (row.begin - row.first) * side,
      before: (column.begin - column.first) * side,
      size: [end(row.last, height) - row.first * side, end(column.last, width) - column.first * side],
    };
  }

  async run(tile, noise, place) {
    const { Tensor } = this.ort;
    const feeds = {
      y: new Tensor("float32", tile.y, [1, this.camera.rows, ...tile.grid]),
      inside: new Tensor("uint8", new Uint8Array(place.size[0] * place.size[1]).fill(1), place.size),
      counts: new Tensor("int32", tile.counts, [1, ...tile.grid]),
      noise: new Tensor("float32", noise, [noise.length]),
    };
    const { image } = await this.session.run(feeds);
    const found = await image.getData();
    const pixels = new Float32Array(place.height * place.width);
    for (let line = 0; line < place.height; line++) {
      const begin = (place.above + line) * place.size[1] + place.before;
      pixels.set(found.subarray(begin, begin + place.width), line * place.width);
    }
    image.dispose?.();
    return pixels;
  }
}

/** Cut windows 0 … count into tiles; first and last include the halo that has a say in them. */
function cut(count, halo) {
  const parts = count <= LARGEST ? 1 : Math.ceil(count / TILE);
  const step = Math.ceil(count / parts);
  const tiles = [];
  for (let begin = 0; begin < count; begin += step) {
    const end = Math.min(count, begin + step);
    tiles.push({ begin, end, first: Math.max(0, begin - halo), last: Math.min(count, end + halo) });
  }
  return tiles;
}

/** The measurements of a tile with all rows of the network, 0 where there are none. */
function tileInputs(allRows, y, rows, counts, [h, w], row, column) {
  const grid = [row.last - row.first, column.last - column.first];
  const tile = { grid, y: new Float32Array(allRows * grid[0] * grid[1]), counts: new Int32Array(grid[0] * grid[1]) };
  for (let i = 0; i < grid[0]; i++) {
    for (let j = 0; j < grid[1]; j++) {
      const [to, from] = [i * grid[1] + j, (row.first + i) * w + column.first + j];
      tile.counts[to] = counts[from];
      const measured = Math.min(rows, counts[from]);
      for (let k = 0; k < measured; k++) tile.y[k * grid[0] * grid[1] + to] = y[k * h * w + from];
    }
  }
  return tile;
}
