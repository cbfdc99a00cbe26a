/*
 * A whole image, line by line, as a sensor delivers it. No line is kept: what is kept are the sums
 * of the windows that are open, in a buffer that the caller has.
 *
 *     static tersense_value sums[TERSENSE_SUMS(640)];
 *     tersense_image image;
 *
 *     tersense_start(&image, 640, 480, sums);
 *     while (...) {
 *         tersense_push_line(&image, line);
 *         while ((y = tersense_take_row(&image)) != NULL)
 *             use(y, TERSENSE_ACROSS(640));
 *     }
 *
 * Any size will do. Pixels outside the image add nothing.
 */
#ifndef TERSENSE_LINES_H
#define TERSENSE_LINES_H

#include "sense.h"

/* Rows of windows that are open at once, windows in a row, and values in the buffer for a width. */
#define TERSENSE_OPEN ((TERSENSE_WINDOW + TERSENSE_STRIDE - 1) / TERSENSE_STRIDE)
#define TERSENSE_ACROSS(width) (((size_t)(width) + TERSENSE_STRIDE - 1) / TERSENSE_STRIDE)
#define TERSENSE_SUMS(width) (TERSENSE_ACROSS(width) * TERSENSE_OPEN * TERSENSE_ROWS)

/* An image whose lines are arriving. */
typedef struct {
    tersense_value *sums;
    size_t width, height;
    size_t line;   /* the next one */
    size_t opened; /* rows of windows that have begun */
    size_t taken;  /* rows of windows that were handed out */
} tersense_image;

/* Begin an image, at least 1 x 1; `sums` has room for TERSENSE_SUMS(width) values. */
void tersense_start(tersense_image *image, size_t width, size_t height, tersense_value *sums);

/* Add the next line, `width` pixels. More than `height` lines are ignored. */
void tersense_push_line(tersense_image *image, const tersense_sample *line);

/*
 * Return the next row of windows that is complete, or NULL if there is none yet: the measurements
 * of TERSENSE_ACROSS(width) windows from left to right, TERSENSE_ROWS each. They stay until the
 * next line comes. After the last line there may be several rows.
 */
const tersense_value *tersense_take_row(tersense_image *image);

#endif
