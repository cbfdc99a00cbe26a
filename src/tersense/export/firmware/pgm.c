#include "pgm.h"

size_t pgm_read(FILE *file, tersense_sample *pixels, size_t count)
{
    unsigned char bytes[2];
    size_t k;

    for (k = 0; k < count; k++) {
        size_t size = TERSENSE_DEPTH > 8 ? 2 : 1;

        if (fread(bytes, 1, size, file) != size)
            break;
        pixels[k] = (tersense_sample)(TERSENSE_DEPTH > 8 ? bytes[0] << 8 | bytes[1] : bytes[0]);
        if (pixels[k] >> (TERSENSE_DEPTH - 1) > 1) {
            fprintf(stderr, "encoder: a pixel has more than %d bits\n", TERSENSE_DEPTH);
            break;
        }
    }
    return k;
}

/* Read the next number of a PGM header, behind blanks and comments; -1 if there is none. */
static long read_number(FILE *file)
{
    long number;
    int sign;

    while (fscanf(file, " %ld", &number) != 1) {
        if (fgetc(file) != '#')
            return -1;
        do
            sign = fgetc(file);
        while (sign != '\n' && sign != EOF);
    }
    return number;
}

FILE *pgm_open(const char *name, size_t *width, size_t *height)
{
    FILE *file = fopen(name, "rb");
    long across, down;

    if (!file || fgetc(file) != 'P' || fgetc(file) != '5' || (across = read_number(file)) < 1
        || (down = read_number(file)) < 1 || read_number(file) != (1L << TERSENSE_DEPTH) - 1) {
        fprintf(stderr, "encoder: %s is not a binary PGM image of %d bits\n", name,
                TERSENSE_DEPTH);
        if (file)
            fclose(file);
        return NULL;
    }
    fgetc(file);
    *width = (size_t)across;
    *height = (size_t)down;
    return file;
}
