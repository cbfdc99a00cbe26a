/* Windows and the measurements that they must give. */
#ifndef TERSENSE_VECTORS_H
#define TERSENSE_VECTORS_H

#include "tables.h"

#define VECTOR_PIXELS (TERSENSE_WINDOW * TERSENSE_WINDOW)

typedef struct {
    const char *name;
    uint8_t pixels[VECTOR_PIXELS];
    tersense_value y[TERSENSE_ROWS];
} test_vector;

extern const unsigned vector_count;
extern const test_vector vectors[];

#endif
