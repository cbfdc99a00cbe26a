/*
 * Try the encoder.
 *
 *   encoder                run the test vectors; exit code 0 if every measurement is right
 *   encoder PICTURE.pgm    sense a gray image (binary PGM) and print its measurements
 *   encoder -              the same for raw windows on standard input, in raster order
 *
 * Pixels of more than 8 bits take two bytes, the higher one first. Measurements, or their codes, are
 * printed as CSV: one line a window, windows in raster order, one value a row of Phi. `tersense
 * reconstruct` reads them, together with manifest.json.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lines.h"
#include "pgm.h"
#include "vectors.h"

static tersense_value y[TERSENSE_ROWS];

static unsigned long count_errors(const test_vector *vector, const char *way)
{
    unsigned long errors = 0;
    int row;

    for (row = 0; row < TERSENSE_ROWS; row++)
        errors += y[row] != vector->y[row];
#ifdef TERSENSE_CODE_BITS
    for (row = 0; row < TERSENSE_ROWS; row++)
        errors += tersense_quantize((size_t)row, y[row]) != vector->codes[row];
#endif
    if (errors)
        printf("%s, %s: %lu measurements are wrong\n", vector->name, way, errors);
    return errors;
}

static unsigned long run_lines(void)
{
    tersense_value *sums = malloc(TERSENSE_SUMS(picture_width) * sizeof *sums);
    size_t count = TERSENSE_ACROSS(picture_width) * TERSENSE_ROWS;
    const tersense_value *expected = picture_y;
    const tersense_value *row;
    tersense_image image;
    unsigned long errors = 0;
    unsigned line, rows = 0;
    size_t k;

    if (!sums)
        return 1;
    tersense_start(&image, picture_width, picture_height, sums);
    for (line = 0; line < picture_height; line++) {
        tersense_push_line(&image, picture + (size_t)line * picture_width);
        while ((row = tersense_take_row(&image)) != NULL) {
            for (k = 0; k < count; k++)
                errors += row[k] != *expected++;
            rows++;
        }
    }
    free(sums);
    errors += rows != TERSENSE_ACROSS(picture_height);
    printf("%ux%u pixels, line by line: %lu wrong\n", picture_width, picture_height, errors);
    return errors;
}

static int run_vectors(void)
{
    unsigned long errors = 0;
    unsigned k;
    int place;

    for (k = 0; k < vector_count; k++) {
        tersense_window window;

        tersense_sense(vectors[k].pixels, TERSENSE_WINDOW, y);
        errors += count_errors(&vectors[k], "whole");
        tersense_begin(&window, y);
        for (place = 0; place < VECTOR_PIXELS; place++)
            tersense_pixel(&window, vectors[k].pixels[place]);
        errors += count_errors(&vectors[k], "pixel by pixel");
    }
    printf("%u windows, %d measurements each: %lu wrong\n", vector_count, TERSENSE_ROWS, errors);
    return (errors += run_lines()) != 0;
}

static void print_measurements(const tersense_value *values)
{
    int row;

    for (row = 0; row < TERSENSE_ROWS; row++) {
#ifdef TERSENSE_CODE_BITS
        long value = (long)tersense_quantize((size_t)row, values[row]);
#else
        long value = (long)values[row];
#endif
        printf(row ? ",%ld" : "%ld", value);
    }
    putchar('\n');
}

static int sense_windows(FILE *file)
{
    static tersense_sample pixels[VECTOR_PIXELS];
    size_t size;

    while ((size = pgm_read(file, pixels, VECTOR_PIXELS)) == VECTOR_PIXELS) {
        tersense_sense(pixels, TERSENSE_WINDOW, y);
        print_measurements(y);
    }
    if (size)
        fprintf(stderr, "encoder: the last window has %u pixels only\n", (unsigned)size);
    return size != 0;
}

static int sense_lines(FILE *file, size_t width, size_t height)
{
    tersense_value *sums = malloc(TERSENSE_SUMS(width) * sizeof *sums);
    tersense_sample *line = malloc(width * sizeof *line);
    const tersense_value *row;
    tersense_image image;
    size_t k;

    tersense_start(&image, width, height, sums);
    for (; sums && line && image.line < height;) {
        if (pgm_read(file, line, width) != width)
            break;
        tersense_push_line(&image, line);
        while ((row = tersense_take_row(&image)) != NULL)
            for (k = 0; k < TERSENSE_ACROSS(width); k++)
                print_measurements(row + k * TERSENSE_ROWS);
    }
    free(sums);
    free(line);
    return image.line == height;
}

static int sense_image(const char *name)
{
    size_t width, height;
    FILE *file = pgm_open(name, &width, &height);
    int done;

    if (!file)
        return 2;
    printf("# height=%lu width=%lu\n", (unsigned long)height, (unsigned long)width);
    done = sense_lines(file, width, height);
    if (!done)
        fprintf(stderr, "encoder: %s ends too early, or is too wide\n", name);
    fclose(file);
    return done ? 0 : 2;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return run_vectors();
    return strcmp(argv[1], "-") ? sense_image(argv[1]) : sense_windows(stdin);
}
