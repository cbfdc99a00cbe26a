// y = Φx by additions and subtractions of pixels: the integers of Python, bit for bit.

import { sha256 } from "./sha256.js";

/** The camera that camera.json describes: patterns of −1, 0, +1 on windows side by side. */
export class Camera {
  constructor(said) {
    Object.assign(this, said);
    this.pixels = this.window ** 2;
    this.plus = said.plus.map((places) => Uint32Array.from(places));
    this.minus = said.minus.map((places) => Uint32Array.from(places));
  }

  /** Windows down and across. */
  grid(height, width) {
    return [Math.ceil(height / this.window), Math.ceil(width / this.window)];
  }

  /** How many rows of Φ a sampling ratio allows, as Python counts them. */
  rowsAt(rate) {
    return Math.max(1, Math.floor(rate * this.pixels + 1e-9));
  }

  /** Additions for so many first rows of one window. */
  additions(rows) {
    let count = 0;
    for (let row = 0; row < rows; row++) count += this.plus[row].length + this.minus[row].length;
    return count;
  }

  /** Measure gray pixels (H, W) with the first rows: y (rows, h, w), exact. */
  sense(image, height, width, rows) {
    const [h, w] = this.grid(height, width);
    const y = new Int32Array(rows * h * w);
    const window = new Uint8Array(this.pixels);
    for (let i = 0; i < h; i++) {
      for (let j = 0; j < w; j++) {
        this.cut(image, height, width, i, j, window);
        for (let row = 0, place = i * w + j; row < rows; row++, place += h * w) {
          let sum = 0;
          for (const k of this.plus[row]) sum += window[k];
          for (const k of this.minus[row]) sum -= window[k];
          y[place] = sum;
        }
      }
    }
    return y;
  }

  /** Copy window (i, j) out of an image; where the image has ended, pixels are 0. */
  cut(image, height, width, i, j, window) {
    const side = this.window;
    const [top, left] = [i * side, j * side];
    const across = Math.min(side, width - left);
    window.fill(0);
    for (let line = 0; line < Math.min(side, height - top); line++) {
      const begin = (top + line) * width + left;
      window.set(image.subarray(begin, begin + across), line * side);
    }
  }

  /** The name of the first rows of Φ in files: the SHA-256 of their shape and entries. */
  hash(rows) {
    const shape = new TextEncoder().encode(`${rows}x${this.window}x${this.window}:`);
    const bytes = new Uint8Array(shape.length + rows * this.pixels);
    bytes.set(shape);
    for (let row = 0; row < rows; row++) {
      const begin = shape.length + row * this.pixels;
      for (const k of this.plus[row]) bytes[begin + k] = 1;
      for (const k of this.minus[row]) bytes[begin + k] = 255; // −1 in 8 bits
    }
    return sha256(bytes);
  }
}
