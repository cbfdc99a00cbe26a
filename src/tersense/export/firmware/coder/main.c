/*
 * Try the coder.
 *
 *   coder                              code the test images; exit code 0 if every byte is right
 *   coder PICTURE.pgm OUT.rice         sense a gray image (binary PGM) and code it
 *   coder PICTURE.pgm OUT.rice MEAN    the same with MEAN measurements per window, on average, where
 *                                      the camera decides which windows take more
 *
 * `tersense reconstruct OUT.rice --manifest ../manifest.json --size WIDTHxHEIGHT` reads the stream.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lines.h"
#include "pgm.h"
#include "rice.h"
#include "streams.h"
#ifdef TERSENSE_CODED_COUNT_BITS
#include "decide.h"
#endif

static tersense_coder coder;

/* A stream that is compared while it is made. */
typedef struct {
    const uint8_t *expected;
    size_t left;
    unsigned long errors;
} comparison;

static void compare(void *to, uint8_t byte)
{
    comparison *seen = to;

    if (!seen->left || *seen->expected != byte)
        seen->errors++;
    if (seen->left) {
        seen->left--;
        seen->expected++;
    }
}

static int run_streams(void)
{
    unsigned long errors = 0;
    unsigned k, window;
    size_t row;

    for (k = 0; k < stream_count; k++) {
        const tersense_coded *value = streams[k].values;
        comparison seen;

        seen.expected = streams[k].bytes;
        seen.left = streams[k].size;
        seen.errors = 0;
        tersense_coder_start(&coder, compare, &seen);
        for (window = 0; window < STREAM_WINDOWS; window++) {
            tersense_coder_begin(&coder, streams[k].counts[window]);
            for (row = 0; row < streams[k].counts[window]; row++)
                tersense_coder_value(&coder, *value++);
        }
        tersense_coder_end(&coder);
        errors += seen.errors + seen.left;
    }
    printf("%u streams of %u windows: %lu bytes wrong\n", stream_count, (unsigned)STREAM_WINDOWS,
           errors);
    return errors != 0;
}

static void write_byte(void *to, uint8_t byte)
{
    putc(byte, (FILE *)to);
}

#ifdef TERSENSE_CODED_COUNT_BITS
/* Decide how many measurements of each window are worth their bits, and code these. */
static int code_frame(const tersense_value *y, size_t across, size_t windows, long mean)
{
    tersense_log *logs = malloc(windows * TERSENSE_LEVELS * sizeof *logs);
    int16_t *scores = malloc(windows * TERSENSE_STEPS * sizeof *scores);
    uint16_t *counts = calloc(windows, sizeof *counts); /* none is sent yet */
    int done = logs && scores && counts;
    size_t k;

    for (k = 0; done && k < windows; k++)
        done = tersense_logs(y + k * TERSENSE_ROWS, logs + k * TERSENSE_LEVELS);
    if (done)
        tersense_score_frame(logs, windows / across, across, scores);
    done = done && tersense_spend(scores, windows, (int64_t)windows * mean, 0, counts);
    for (k = 0; done && k < windows; k++)
        tersense_coder_window(&coder, y + k * TERSENSE_ROWS, counts[k]);
    free(logs);
    free(scores);
    free(counts);
    return done;
}
#endif

/* Sense line by line; a camera that decides keeps the measurements of the frame meanwhile. */
static int code_lines(FILE *file, size_t width, size_t height, long mean)
{
    const size_t across = TERSENSE_ACROSS(width), windows = across * TERSENSE_ACROSS(height);
    tersense_value *sums = malloc(TERSENSE_SUMS(width) * sizeof *sums);
    tersense_sample *line = malloc(width * sizeof *line);
    tersense_value *kept = mean ? malloc(windows * TERSENSE_ROWS * sizeof *kept) : NULL;
    const tersense_value *row;
    tersense_image image;
    size_t k, seen = 0;
    int done = sums && line && (kept || !mean);

    tersense_start(&image, width, height, sums);
    while (done && image.line < height) {
        done = pgm_read(file, line, width) == width;
        if (!done)
            break;
        tersense_push_line(&image, line);
        while ((row = tersense_take_row(&image)) != NULL) {
            for (k = 0; kept && k < across * TERSENSE_ROWS; k++)
                kept[seen++] = row[k];
            for (k = 0; !kept && k < across; k++)
                tersense_coder_window(&coder, row + k * TERSENSE_ROWS, TERSENSE_ROWS);
        }
    }
#ifdef TERSENSE_CODED_COUNT_BITS
    if (done && kept)
        done = code_frame(kept, across, windows, mean);
#endif
    free(sums);
    free(line);
    free(kept);
    return done;
}

static int code_image(const char *name, const char *target, long mean)
{
    size_t width, height;
    FILE *file = pgm_open(name, &width, &height), *out;
    int done = 0;

    if (!file)
        return 2;
    out = fopen(target, "wb");
    if (out) {
        tersense_coder_start(&coder, write_byte, out);
        done = code_lines(file, width, height, mean);
        tersense_coder_end(&coder);
        done = fclose(out) == 0 && done;
    }
    if (!done)
        fprintf(stderr, "coder: %s cannot be coded: it is too short or too large, %s cannot be "
                "written, or the mean is too small\n", name, target);
    fclose(file);
    return done ? 0 : 2;
}

int main(int argc, char **argv)
{
    long mean = argc > 3 ? strtol(argv[3], NULL, 10) : 0;

    if (argc == 1)
        return run_streams();
#ifndef TERSENSE_CODED_COUNT_BITS
    if (argc > 3)
        mean = -1; /* this camera does not decide */
#endif
    if (argc == 2 || argc > 4 || mean < 0 || (argc == 4 && mean == 0)) {
        fprintf(stderr, "usage: coder PICTURE.pgm OUT.rice [MEAN, if the camera decides]\n");
        return 2;
    }
    return code_image(argv[1], argv[2], mean);
}
