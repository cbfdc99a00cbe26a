/*
 * Try the decision.
 *
 *   decider       run the test frames; exit code 0 if every score and every count is right
 *   decider -     decide frames on standard input. A frame is four numbers (int32_t: windows, known
 *                 rows, start, budget) and the known measurements (tersense_value) of one window
 *                 after the other; out come the scores of all windows (int16_t) and their counts
 *                 (uint16_t). All in this computer's order of bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frames.h"

static int16_t scores[FRAME_WINDOWS * TERSENSE_STEPS];
static uint16_t counts[FRAME_WINDOWS];

static unsigned long run_frame(const test_frame *frame)
{
    unsigned long errors = 0;
    size_t k;

    for (k = 0; k < FRAME_WINDOWS; k++)
        if (!tersense_score(frame->y + k * TERSENSE_ROWS, frame->known,
                            scores + k * TERSENSE_STEPS))
            errors++;
    for (k = 0; k < FRAME_WINDOWS * TERSENSE_STEPS; k++)
        errors += scores[k] != frame->scores[k];
    errors += !tersense_spend(scores, FRAME_WINDOWS, frame->start, frame->budget, counts);
    for (k = 0; k < FRAME_WINDOWS; k++)
        errors += counts[k] != frame->counts[k];
    return errors;
}

static int run_frames(void)
{
    unsigned long errors = 0;
    unsigned k;

    for (k = 0; k < frame_count; k++)
        errors += run_frame(&frames[k]);
    printf("%u frames of %u windows: %lu wrong\n", frame_count, (unsigned)FRAME_WINDOWS, errors);
    return errors != 0;
}

static int decide_frame(const int32_t sizes[4])
{
    const size_t windows = (size_t)sizes[0], known = (size_t)sizes[1];
    tersense_value *y = malloc(known * sizeof *y);
    int16_t *kept = malloc(windows * TERSENSE_STEPS * sizeof *kept);
    uint16_t *taken = malloc(windows * sizeof *taken);
    int right = y && kept && taken && known <= TERSENSE_ROWS;
    size_t k;

    for (k = 0; right && k < windows; k++)
        right = fread(y, sizeof *y, known, stdin) == known
                && tersense_score(y, known, kept + k * TERSENSE_STEPS);
    if (right) {
        fwrite(kept, sizeof *kept, windows * TERSENSE_STEPS, stdout);
        right = tersense_spend(kept, windows, (unsigned)sizes[2], sizes[3], taken);
        fwrite(taken, sizeof *taken, right ? windows : 0, stdout);
    }
    free(y);
    free(kept);
    free(taken);
    return right;
}

int main(int argc, char **argv)
{
    int32_t sizes[4];

    if (argc < 2 || strcmp(argv[1], "-"))
        return run_frames();
    while (fread(sizes, sizeof sizes, 1, stdin) == 1)
        if (sizes[0] < 1 || sizes[1] < 1 || sizes[2] < 0 || !decide_frame(sizes)) {
            fprintf(stderr, "decider: a frame ends too early, or its numbers are impossible\n");
            return 2;
        }
    return 0;
}
