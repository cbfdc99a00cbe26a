"""The operator written out as its definition says, to compare everything with."""

import numpy as np


def sense_slowly(image, phi, stride):
    """Sense (H, W) window by window in int64; pixels outside the image add nothing."""
    m, window, _ = phi.shape
    height, width = image.shape
    rows, columns = -(-height // stride), -(-width // stride)
    begin = -((window - stride) // 2)
    y = np.zeros((m, rows, columns), np.int64)
    for i in range(rows):
        for j in range(columns):
            for r in range(window):
                for c in range(window):
                    row, column = begin + i * stride + r, begin + j * stride + c
                    if 0 <= row < height and 0 <= column < width:
                        y[:, i, j] += phi[:, r, c].astype(np.int64) * int(image[row, column])
    return y


def sense_by_windows(phi, stride, image):
    """Sense window by window in int64, each window cut to the image."""
    m, B, _ = phi.shape
    H, W = image.shape
    h, w = -(-H // stride), -(-W // stride)
    lead = (B - stride) // 2
    phi, image = phi.astype(np.int64), image.astype(np.int64)
    y = np.zeros((m, h, w), np.int64)
    for i in range(h):
        top = i * stride - lead
        a, b = max(top, 0), min(top + B, H)
        for j in range(w):
            left = j * stride - lead
            c, d = max(left, 0), min(left + B, W)
            if a < b and c < d:
                part = phi[:, a - top : b - top, c - left : d - left]
                y[:, i, j] = (part * image[a:b, c:d]).sum((1, 2))
    return y
