// A PNG file without transparency, gray where the image is: what a canvas cannot write.

import { deflate } from "./tsm.js";

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

/** The content of a file, given one channel or three. */
export async function encodePng(channels, width, height) {
  const colors = channels.length;
  const lines = new Uint8Array(height * (1 + width * colors)); // each begins with its filter, none
  for (let y = 0, at = 0; y < height; y++) {
    at++;
    for (let x = 0; x < width; x++) {
      for (const channel of channels) lines[at++] = channel[y * width + x];
    }
  }
  const head = new DataView(new ArrayBuffer(13));
  head.setUint32(0, width);
  head.setUint32(4, height);
  head.setUint8(8, 8);
  head.setUint8(9, colors > 1 ? 2 : 0);
  const parts = [chunk("IHDR", new Uint8Array(head.buffer)), chunk("IDAT", await deflate(lines)), chunk("IEND", new Uint8Array())];
  return new Blob([Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10), ...parts], { type: "image/png" });
}

function chunk(name, content) {
  const bytes = new Uint8Array(12 + content.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, content.length);
  bytes.set(new TextEncoder().encode(name), 4);
  bytes.set(content, 8);
  let crc = 0xffffffff;
  for (const byte of bytes.subarray(4, 8 + content.length)) crc = TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  view.setUint32(8 + content.length, ~crc >>> 0);
  return bytes;
}
