/*
 * Try the decision.
 *
 *   decider       run the test frames; exit code 0 if every score and every count is right
 *   decider -     decide frames on standard input. A frame is five numbers (int32_t: windows down
 *                 and across, whether they have taken what is known, whether to take whole steps
 *                 only, budget) and for each window how many measurements are known (int32_t) and
 *                 these (tersense_value); out come the scores of all windows (int16_t) and their
 *                 counts (uint16_t). All in this computer's order of bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frames.h"

static int16_t scores[FRAME_WINDOWS * TERSENSE_STEPS];
static tersense_log logs[FRAME_WINDOWS * TERSENSE_LEVELS];
static uint16_t counts[FRAME_WINDOWS];

/* Score a window of an open loop, or keep what an encoder scores later. */
static int take(const tersense_value *y, size_t known, int taken, tersense_log *kept,
                int16_t *scored)
{
    if (taken)
        return tersense_score(y, known, scored);
    return known == TERSENSE_ROWS && tersense_logs(y, kept);
}

static unsigned long run_frame(const test_frame *frame)
{
    unsigned long errors = 0;
    size_t k;

    for (k = 0; k < FRAME_WINDOWS; k++) {
        counts[k] = frame->taken ? frame->known[k] : 0;
        errors += !take(frame->y + k * TERSENSE_ROWS, frame->known[k], frame->taken,
                        logs + k * TERSENSE_LEVELS, scores + k * TERSENSE_STEPS);
    }
    if (!frame->taken)
        tersense_score_frame(logs, FRAME_HEIGHT, FRAME_WIDTH, scores);
    for (k = 0; k < FRAME_WINDOWS * TERSENSE_STEPS; k++)
        errors += scores[k] != frame->scores[k];
    errors += !tersense_spend(scores, FRAME_WINDOWS, frame->budget, frame->whole, counts);
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

static int decide_frame(const int32_t order[5])
{
    const size_t windows = (size_t)order[0] * (size_t)order[1];
    tersense_value y[TERSENSE_ROWS];
    int16_t *kept = malloc(windows * TERSENSE_STEPS * sizeof *kept);
    tersense_log *seen = malloc(windows * TERSENSE_LEVELS * sizeof *seen);
    uint16_t *taken = malloc(windows * sizeof *taken);
    int right = kept && seen && taken;
    int32_t known;
    size_t k;

    for (k = 0; right && k < windows; k++) {
        right = fread(&known, sizeof known, 1, stdin) == 1 && known >= 1 && known <= TERSENSE_ROWS
                && fread(y, sizeof *y, (size_t)known, stdin) == (size_t)known
                && take(y, (size_t)known, order[2] != 0, seen + k * TERSENSE_LEVELS,
                        kept + k * TERSENSE_STEPS);
        taken[k] = (uint16_t)(right && order[2] ? known : 0);
    }
    if (right && !order[2])
        tersense_score_frame(seen, (size_t)order[0], (size_t)order[1], kept);
    if (right) {
        fwrite(kept, sizeof *kept, windows * TERSENSE_STEPS, stdout);
        right = tersense_spend(kept, windows, order[4], order[3], taken);
        fwrite(taken, sizeof *taken, right ? windows : 0, stdout);
    }
    free(kept);
    free(seen);
    free(taken);
    return right;
}

int main(int argc, char **argv)
{
    int32_t order[5];

    if (argc < 2 || strcmp(argv[1], "-"))
        return run_frames();
    while (fread(order, sizeof order, 1, stdin) == 1)
        if (order[0] < 1 || order[1] < 1 || !decide_frame(order)) {
            fprintf(stderr, "decider: a frame ends too early, or its numbers are impossible\n");
            return 2;
        }
    return 0;
}
