/* Binary PGM images of TERSENSE_DEPTH bits, for the programs that try the encoder. */
#ifndef TERSENSE_PGM_H
#define TERSENSE_PGM_H

#include <stdio.h>

#include "sense.h"

/* Open a gray image and read its header; NULL, and a line on stderr, if it is none. */
FILE *pgm_open(const char *name, size_t *width, size_t *height);

/* Read pixels, those of more than 8 bits as two bytes, the higher one first; return how many. */
size_t pgm_read(FILE *file, tersense_sample *pixels, size_t count);

#endif
