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

/* Read pixels; return how many there were. */
static size_t read_pixels(FILE *file, tersense_sample *pixels, size_t count)
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

static int sense_windows(FILE *file)
{
    static tersense_sample pixels[VECTOR_PIXELS];
    size_t size;

    while ((size = read_pixels(file, pixels, VECTOR_PIXELS)) == VECTOR_PIXELS) {
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
        if (read_pixels(file, line, width) != width)
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

static int sense_image(const char *name)
{
    FILE *file = fopen(name, "rb");
    long width, height;
    int done;

    if (!file || fgetc(file) != 'P' || fgetc(file) != '5' || (width = read_number(file)) < 1
        || (height = read_number(file)) < 1
        || read_number(file) != (1L << TERSENSE_DEPTH) - 1) {
        fprintf(stderr, "encoder: %s is not a binary PGM image of %d bits\n", name,
                TERSENSE_DEPTH);
        return 2;
    }
    fgetc(file);
    printf("# height=%ld width=%ld\n", height, width);
    done = sense_lines(file, (size_t)width, (size_t)height);
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
