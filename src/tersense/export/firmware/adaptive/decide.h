/*
 * Where to measure more, decided by the sensor in integers; bit for bit the decision of tersense.
 *
 * Every window gets scores from the measurements that it has: what further ones would gain, step by
 * step from one level (tersense_levels) to the next. Then a frame's budget is spent on the steps
 * with the highest scores.
 *
 *   open loop   measure the rows of a level in every window; score; spend a part of the budget in
 *               whole steps; measure; and so on until the whole budget is spent
 *   encoder     compute all rows of every window; score all windows, each beside those around it;
 *               spend with counts of 0; send as many of the first rows of each window as its count
 *               says
 *
 * Freestanding C99: no library, no heap, no floating point, no division, no variables of its own.
 * The caller keeps the scores of a frame, TERSENSE_STEPS values of 16 bits per window, and in an
 * encoder the logarithms that they follow from, TERSENSE_LEVELS values of 8 or 16 bits.
 */
#ifndef TERSENSE_DECIDE_H
#define TERSENSE_DECIDE_H

#include <stddef.h>
#include <stdint.h>

#include "decision.h"

/* A window whose measurements are arriving. Several may be under way at once. */
typedef struct {
    tersense_value first[TERSENSE_FIRST_ROWS];
    tersense_log logs[TERSENSE_LEVELS]; /* of the groups that are complete */
    tersense_sum sum;                   /* of the group under way */
    uint16_t rows, groups;
} tersense_scorer;

/* Begin a window; add its measurements one by one, in the order of the rows, TERSENSE_ROWS at most. */
void tersense_score_begin(tersense_scorer *scorer);
void tersense_score_row(tersense_scorer *scorer, tersense_value y);

/*
 * Open loop: compute the scores of a window from the measurements so far. Returns 0, and computes
 * nothing, if these are fewer than the first level.
 */
int tersense_score_end(const tersense_scorer *scorer, int16_t scores[TERSENSE_STEPS]);

/* The same for `known` measurements that lie in memory. Also with all rows, these are not the scores
 * of an encoder: a window does not see those around it here. */
int tersense_score(const tersense_value *y, size_t known, int16_t scores[TERSENSE_STEPS]);

/* Encoder: keep what the scores of a window follow from. Returns 0 if rows are missing. */
int tersense_logs_end(const tersense_scorer *scorer, tersense_log logs[TERSENSE_LEVELS]);

/* The same for all TERSENSE_ROWS measurements, which lie in memory. */
int tersense_logs(const tersense_value *y, tersense_log logs[TERSENSE_LEVELS]);

/* Encoder: compute the scores of a frame of height x width windows, one row after the other. */
void tersense_score_frame(const tersense_log *logs, size_t height, size_t width, int16_t *scores);

/*
 * Decide how many measurements each window of a frame takes, those included that it has: together
 * `budget`, or all rows of all windows if that is less.
 *
 * scores: those of one window after the other, each from the rows that it has; they are overwritten.
 * whole:  take whole steps only, so that windows end at levels and can be decided again; what no
 *         step fits into is left.
 * counts: what windows have, levels (open loop) or all 0 (encoder); then what they take.
 *
 * Returns 0, and decides nothing, if counts are others, or the budget is below what all windows take
 * in any case: what they have, or the first level.
 */
int tersense_spend(int16_t *scores, size_t windows, int64_t budget, int whole, uint16_t *counts);

#endif
