/*
 * Try the encoder.
 *
 *   encoder                run the test vectors; exit code 0 if every measurement is right
 *   encoder PICTURE.pgm    sense a gray image (binary PGM) and print its measurements
 *   encoder -              the same for raw windows on standard input, in raster order
 *
 * Measurements are printed as CSV: one line a window, windows in raster order, one value a row of
 * Phi. `tersense reconstruct` reads them, together with manifest.json.
 */
#include <stdio.h>
#include <string.h>

#include "sense.h"
#include "vectors.h"

static tersense_value y[TERSENSE_ROWS];

static unsigned long count_errors(const test_vector *vector, const char *way)
{
    unsigned long errors = 0;
    int row;

    for (row = 0; row < TERSENSE_ROWS; row++)
        errors += y[row] != vector->y[row];
    if (errors)
        printf("%s, %s: %lu measurements are wrong\n", vector->name, way, errors);
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
    return errors != 0;
}

static void print_measurements(void)
{
    int row;

    for (row = 0; row < TERSENSE_ROWS; row++)
        printf(row ? ",%ld" : "%ld", (long)y[row]);
    putchar('\n');
}

static int sense_windows(FILE *file)
{
    static uint8_t pixels[VECTOR_PIXELS];
    size_t size;

    while ((size = fread(pixels, 1, sizeof pixels, file)) == sizeof pixels) {
        tersense_sense(pixels, TERSENSE_WINDOW, y);
        print_measurements();
    }
    if (size)
        fprintf(stderr, "encoder: the last window has %u pixels only\n", (unsigned)size);
    return size != 0;
}

/* Sense the window at (top, left) of an image in a file; line by line, so that any size fits. */
static int sense_part(FILE *file, long start, long height, long width, long top, long left)
{
    static uint8_t line[TERSENSE_WINDOW];
    tersense_window window;
    long first = left < 0 ? 0 : left;
    long last = left + TERSENSE_WINDOW > width ? width : left + TERSENSE_WINDOW;
    long row;
    int across;

    tersense_begin(&window, y);
    for (row = top; row < top + TERSENSE_WINDOW; row++) {
        memset(line, 0, sizeof line);
        if (row >= 0 && row < height) {
            size_t size = (size_t)(last - first);

            if (fseek(file, start + row * width + first, SEEK_SET)
                || fread(line + (first - left), 1, size, file) != size)
                return 1;
        }
        for (across = 0; across < TERSENSE_WINDOW; across++)
            tersense_pixel(&window, line[across]);
    }
    return 0;
}

/* Read a number of a PGM header; comments may stand before it. Return -1 where there is none. */
static long read_number(FILE *file)
{
    long number;
    int c;

    while ((c = getc(file)) == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#')
        if (c == '#')
            while ((c = getc(file)) != '\n' && c != EOF)
                ;
    ungetc(c, file);
    return fscanf(file, "%ld", &number) == 1 ? number : -1;
}

static int sense_image(const char *name)
{
    FILE *file = fopen(name, "rb");
    long height, width, start, top, left;
    char magic[3] = "";

    if (!file || fscanf(file, "%2s", magic) != 1 || strcmp(magic, "P5")
        || (width = read_number(file)) < 1 || (height = read_number(file)) < 1
        || read_number(file) != 255) {
        fprintf(stderr, "encoder: %s is not a binary PGM image of 8 bits\n", name);
        return 2;
    }
    start = ftell(file) + 1;
    printf("# height=%ld width=%ld\n", height, width);
    for (top = 0; top < height; top += TERSENSE_STRIDE)
        for (left = 0; left < width; left += TERSENSE_STRIDE) {
            if (sense_part(file, start, height, width, top - TERSENSE_OFFSET,
                           left - TERSENSE_OFFSET)) {
                fprintf(stderr, "encoder: %s ends too early\n", name);
                return 2;
            }
            print_measurements();
        }
    fclose(file);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return run_vectors();
    return strcmp(argv[1], "-") ? sense_image(argv[1]) : sense_windows(stdin);
}
