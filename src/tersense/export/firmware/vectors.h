/* Windows, and an image, and the measurements that they must give. */
#ifndef TERSENSE_VECTORS_H
#define TERSENSE_VECTORS_H

#include "tables.h"

#define VECTOR_PIXELS (TERSENSE_WINDOW * TERSENSE_WINDOW)

typedef struct {
    const char *name;
    tersense_sample pixels[VECTOR_PIXELS];
    tersense_value y[TERSENSE_ROWS];
#ifdef TERSENSE_CODE_BITS
    tersense_code codes[TERSENSE_ROWS];
#endif
} test_vector;

extern const unsigned vector_count;
extern const test_vector vectors[];

extern const unsigned picture_width, picture_height;
extern const tersense_sample picture[];
extern const tersense_value picture_y[]; /* windows in raster order */

#endif
