/*
 * Compressed sensing of one window of an image by additions alone: y = Phi x, Phi ternary. For
 * images that come line by line there is lines.h.
 *
 * Freestanding C99: no library, no heap, no multiplication. The tables lie in flash; all that is
 * written is the measurements. A measurement can never overflow: no partial sum leaves the range
 * of tersense_value, whatever the pixels are.
 *
 * A window has TERSENSE_WINDOW x TERSENSE_WINDOW pixels and gives TERSENSE_ROWS measurements.
 * Window (i, j) of an image begins at pixel (i * TERSENSE_STRIDE - TERSENSE_OFFSET,
 * j * TERSENSE_STRIDE - TERSENSE_OFFSET). Pixels outside the image add nothing: give 0 for them.
 */
#ifndef TERSENSE_SENSE_H
#define TERSENSE_SENSE_H

#include <stddef.h>
#include <stdint.h>

#include "tables.h"

/* A window whose pixels are arriving. Several may be under way at once. */
typedef struct {
    const tersense_count *counts; /* of the next pixel */
    const tersense_row *rows;     /* of the next pixel */
    tersense_value *y;
} tersense_window;

/* Begin a window: set its measurements to zero. */
void tersense_begin(tersense_window *window, tersense_value y[TERSENSE_ROWS]);

/*
 * Add the next pixel of a window, in raster order; after the last one y is complete. A window
 * takes no more than TERSENSE_WINDOW * TERSENSE_WINDOW pixels.
 */
void tersense_pixel(tersense_window *window, tersense_sample pixel);

/*
 * Sense a whole window that lies in memory. Its first pixel is at `pixels`; a pixel's lower
 * neighbor is `pitch` further on: the width of the image, or TERSENSE_WINDOW.
 */
void tersense_sense(const tersense_sample *pixels, size_t pitch, tersense_value y[TERSENSE_ROWS]);

#ifdef TERSENSE_CODE_BITS
/*
 * Round a measurement of a row to a code: clip(floor((y - middle) / step + 1/2), -largest .. largest),
 * where largest = 2^(TERSENSE_CODE_BITS - 1) - 1, middle is 0 and step is TERSENSE_STEP; where rows
 * have their own, tersense_middles[row] and tersense_steps[row]. A code stands for
 * middle + code * step.
 */
tersense_code tersense_quantize(size_t row, tersense_value y);
#endif

#endif
