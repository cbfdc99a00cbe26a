/*
 * The bits of a sensor: an adaptive Golomb-Rice code of measurements, or of their codes; byte for
 * byte that of tersense (src/tersense/measurements/rice.py tells the format).
 *
 *     tersense_coder coder;
 *
 *     tersense_coder_start(&coder, emit, to);
 *     while (...)
 *         tersense_coder_window(&coder, y, TERSENSE_ROWS);
 *     tersense_coder_end(&coder);
 *
 * Windows come in raster order. Freestanding C99: no library, no heap, no multiplication, no
 * division, no variables of its own.
 */
#ifndef TERSENSE_RICE_H
#define TERSENSE_RICE_H

#include <stddef.h>
#include <stdint.h>

#include "code.h"
#include "sense.h"

/* Takes the bytes, one after the other; `to` is the caller's own. */
typedef void (*tersense_emit)(void *to, uint8_t byte);

/* An image whose windows are being coded. */
typedef struct {
    tersense_emit emit;
    void *to;
    const uint16_t *term;               /* of the row that comes next */
    tersense_word means[TERSENSE_ROWS]; /* of each row, and */
    tersense_word running;              /* of all values so far, eight times */
    tersense_word news[TERSENSE_KEPT];  /* of the first rows of this window */
    tersense_word left;                 /* the first row of the window before */
    size_t row, known;                  /* the row that comes next; those that came so far */
    unsigned held, filled;              /* bits that are no byte yet, and their number */
} tersense_coder;

/* Begin an image. */
void tersense_coder_start(tersense_coder *coder, tersense_emit emit, void *to);

/*
 * Code the first `count` measurements of the next window, rounded first where the camera has a
 * quantizer. Where TERSENSE_CODED_COUNT_BITS is not defined, count is TERSENSE_ROWS.
 */
void tersense_coder_window(tersense_coder *coder, const tersense_value *y, size_t count);

/* The same by single values, which may be codes from elsewhere: begin a window, give its rows. */
void tersense_coder_begin(tersense_coder *coder, size_t count);
void tersense_coder_value(tersense_coder *coder, tersense_coded value);

/* Fill up the last byte, after the last window. */
void tersense_coder_end(tersense_coder *coder);

#endif
