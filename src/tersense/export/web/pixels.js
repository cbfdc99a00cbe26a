// Pixels of a file, as the package reads them: 8 bits, gray or color, nothing corrected.

const MAX_BYTES = 20 * 2 ** 20;
const MAX_PIXELS = 2 ** 18; // larger images are reduced: time grows with them

/** Decode an image: { channels, height, width, note }, one channel where all pixels are gray. */
export async function readImage(file) {
  if (file.size > MAX_BYTES) throw new Error(`the file must have at most ${MAX_BYTES / 2 ** 20} MB, got ${(file.size / 2 ** 20).toFixed(1)} MB`);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none" });
  } catch {
    throw new Error(`${file.name ?? "this file"} is not an image that this browser reads`);
  }
  const [width, height, note] = reduced(bitmap);
  const canvas = new OffscreenCanvas(width, height);
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "#fff"; // behind what is transparent
  pen.fillRect(0, 0, width, height);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const { data } = pen.getImageData(0, 0, width, height);
  const channels = [0, 1, 2].map((c) => Uint8Array.from({ length: width * height }, (_, k) => data[4 * k + c]));
  return { channels: isGray(channels) ? channels.slice(0, 1) : channels, height, width, note };
}

function reduced({ width, height }) {
  const scale = Math.sqrt(MAX_PIXELS / (width * height));
  if (scale >= 1) return [width, height, ""];
  const size = [width, height].map((side) => Math.max(1, Math.floor(side * scale)));
  return [...size, `The image was reduced from ${width}×${height} pixels.`];
}

function isGray([r, g, b]) {
  return r.every((value, k) => value === g[k] && value === b[k]);
}

/** Brightness of a color image, rounded as Pillow does it. */
export function toGray([r, g, b]) {
  if (!g) return [r];
  return [r.map((value, k) => (19595 * value + 38470 * g[k] + 7471 * b[k] + 32768) >> 16)];
}
