#include "decide.h"

#define LOWEST (-2048)
#define HIGHEST 2046
#define TAKEN 2047 /* instead of a score: the window has these rows already */
#define SCORE_BITS 12

/* How far scores are followed: the mean difference that means nothing, and the most eighths that are
 * left of one. */
typedef struct {
    int chance, most;
} trust;

static const trust of_encoder = {1, 6}; /* all rows are known */
static const trust of_open = {2, 4};    /* few are */
static const trust of_whole = {3, 3};   /* and a step cannot be taken in part */

/* Shift right and round down; C leaves it open for negative numbers. */
static tersense_sum shift_down(tersense_sum value, unsigned by)
{
    return value < 0 ? ~(~value >> by) : value >> by;
}

/* Return 8 * log2(value), the fraction cut to a straight line; 0 for 0 and 1. */
static tersense_log log2_eighths(tersense_sum value)
{
    unsigned place = 0;

    if (value < 1)
        value = 1;
    while (value >> place > 1)
        place++;
    value = place < 3 ? value << (3 - place) : value >> (place - 3);
    return (tersense_log)(8 * place + ((unsigned)value & 7));
}

void tersense_score_begin(tersense_scorer *scorer)
{
    size_t row;

    for (row = 0; row < TERSENSE_FIRST_ROWS; row++)
        scorer->first[row] = 0;
    scorer->sum = 0;
    scorer->rows = scorer->groups = 0;
}

void tersense_score_row(tersense_scorer *scorer, tersense_value y)
{
    const int8_t *weights = tersense_prediction + (size_t)scorer->rows * TERSENSE_FIRST_ROWS;
    tersense_sum told = 1 << (TERSENSE_PREDICTION_SHIFT - 1), rest;
    size_t k;

    for (k = 0; k < TERSENSE_FIRST_ROWS; k++)
        told += (tersense_sum)weights[k] * scorer->first[k];
    rest = y - shift_down(told, TERSENSE_PREDICTION_SHIFT);
    scorer->sum += rest < 0 ? -rest : rest;
    if (scorer->rows < TERSENSE_FIRST_ROWS)
        scorer->first[scorer->rows] = y;
    scorer->rows++;
    if (scorer->groups < TERSENSE_LEVELS && scorer->rows == tersense_levels[scorer->groups]) {
        scorer->logs[scorer->groups++] = log2_eighths(scorer->sum);
        scorer->sum = 0;
    }
}

/* Compute the scores of a window from the logarithms of its groups, and where all groups are known
 * from the sums of those of the four windows around it. */
static void score_groups(const tersense_log *logs, size_t groups,
                         const tersense_sum around[TERSENSE_LEVELS],
                         int16_t scores[TERSENSE_STEPS])
{
    const tersense_net *net = &tersense_nets[groups - 1];
    tersense_sum hidden[TERSENSE_HIDDEN], sum;
    size_t unit, k;

    for (unit = 0; unit < TERSENSE_HIDDEN; unit++) {
        sum = net->first_bias[unit];
        for (k = 0; k < groups; k++)
            sum += (tersense_sum)net->first[unit][k] * logs[k];
        for (k = 0; groups == TERSENSE_LEVELS && k < groups; k++)
            sum += tersense_around[unit][k] * around[k];
        hidden[unit] = sum < 0 ? 0 : sum >> TERSENSE_HIDDEN_SHIFT;
    }
    for (k = 0; k < TERSENSE_STEPS; k++) {
        sum = net->second_bias[k];
        for (unit = 0; unit < TERSENSE_HIDDEN; unit++)
            sum += net->second[k][unit] * hidden[unit];
        sum = shift_down(sum, net->shift);
        sum = sum < LOWEST ? LOWEST : sum > HIGHEST ? HIGHEST : sum;
        scores[k] = k && scores[k - 1] < sum ? scores[k - 1] : (int16_t)sum;
    }
}

int tersense_score_end(const tersense_scorer *scorer, int16_t scores[TERSENSE_STEPS])
{
    tersense_sum around[TERSENSE_LEVELS];
    size_t k;

    if (scorer->groups == 0)
        return 0;
    for (k = 0; k < scorer->groups; k++)
        around[k] = 4 * (tersense_sum)scorer->logs[k];
    score_groups(scorer->logs, scorer->groups, around, scores);
    return 1;
}

static tersense_scorer score_rows(const tersense_value *y, size_t known)
{
    tersense_scorer scorer;
    size_t row;

    tersense_score_begin(&scorer);
    for (row = 0; row < known; row++)
        tersense_score_row(&scorer, y[row]);
    return scorer;
}

int tersense_score(const tersense_value *y, size_t known, int16_t scores[TERSENSE_STEPS])
{
    const tersense_scorer scorer = score_rows(y, known);

    return tersense_score_end(&scorer, scores);
}

int tersense_logs_end(const tersense_scorer *scorer, tersense_log logs[TERSENSE_LEVELS])
{
    size_t k;

    for (k = 0; k < scorer->groups; k++)
        logs[k] = scorer->logs[k];
    return scorer->groups == TERSENSE_LEVELS;
}

int tersense_logs(const tersense_value *y, tersense_log logs[TERSENSE_LEVELS])
{
    const tersense_scorer scorer = score_rows(y, TERSENSE_ROWS);

    return tersense_logs_end(&scorer, logs);
}

void tersense_score_frame(const tersense_log *logs, size_t height, size_t width, int16_t *scores)
{
    const size_t below = width * TERSENSE_LEVELS, beside = TERSENSE_LEVELS;
    tersense_sum around[TERSENSE_LEVELS];
    size_t row, column, k;

    for (row = 0; row < height; row++)
        for (column = 0; column < width; column++) {
            for (k = 0; k < TERSENSE_LEVELS; k++)
                around[k] = (tersense_sum)(row ? logs - below : logs)[k]
                            + (row + 1 < height ? logs + below : logs)[k]
                            + (column ? logs - beside : logs)[k]
                            + (column + 1 < width ? logs + beside : logs)[k];
            score_groups(logs, TERSENSE_LEVELS, around, scores);
            logs += TERSENSE_LEVELS;
            scores += TERSENSE_STEPS;
        }
}

/* Mark the steps that windows have. Returns 0 if counts are neither all 0 nor all levels. */
static int mark(int16_t *scores, size_t windows, const uint16_t *counts)
{
    const int taken = *counts != 0;
    size_t k;

    for (; windows; windows--, counts++, scores += TERSENSE_STEPS) {
        for (k = 0; k < TERSENSE_STEPS && tersense_levels[k + 1] <= *counts; k++)
            scores[k] = TAKEN;
        if (*counts != (taken ? tersense_levels[k] : 0))
            return 0;
    }
    return 1;
}

/* Return the mean of a step's scores, rounded down, bit by bit; count them too. */
static int mean_of(const int16_t *scores, size_t windows, int64_t *all)
{
    int64_t rest = 0, number = 0;
    int mean = LOWEST, place;

    for (; windows; windows--, scores += TERSENSE_STEPS)
        if (*scores != TAKEN) {
            rest += *scores - LOWEST;
            number++;
        }
    for (place = SCORE_BITS - 1; place >= 0; place--) {
        const int64_t part = number << place;

        if (rest >= part) {
            rest -= part;
            mean += 1 << place;
        }
    }
    *all += number;
    return mean;
}

/* Draw scores to the mean of their step, the more the less they differ. */
static void temper(int16_t *scores, size_t windows, trust trusted)
{
    int means[TERSENSE_STEPS], share = 0;
    int64_t all = 0, apart = 0;
    size_t window, k;

    for (k = 0; k < TERSENSE_STEPS; k++) {
        means[k] = mean_of(scores + k, windows, &all);
        for (window = 0; window < windows; window++) {
            const int score = scores[window * TERSENSE_STEPS + k], by = score - means[k];
            apart += score == TAKEN ? 0 : by < 0 ? -by : by;
        }
    }
    while (share < trusted.most && apart >= (trusted.chance + 2 * (share + 1)) * all)
        share++;
    for (window = 0; window < windows; window++, scores += TERSENSE_STEPS)
        for (k = 0; k < TERSENSE_STEPS; k++)
            if (scores[k] != TAKEN) {
                const int near = means[k] + (int)shift_down(share * (scores[k] - means[k]), 3);
                scores[k] = k && scores[k - 1] < near ? scores[k - 1] : (int16_t)near;
            }
}

/* Return what a window takes: the first level, and the steps that have at least a score. */
static unsigned taken_of(const int16_t *scores, int least)
{
    size_t k = 0;

    while (k < TERSENSE_STEPS && scores[k] >= least)
        k++;
    return tersense_levels[k];
}

static int64_t taken_of_all(const int16_t *scores, size_t windows, int least)
{
    int64_t sum = 0;

    for (; windows; windows--, scores += TERSENSE_STEPS)
        sum += taken_of(scores, least);
    return sum;
}

/* Share out what the threshold leaves to the steps just below: as many to each, one to the first. */
static void share_out(const int16_t *scores, size_t windows, int threshold, int64_t left,
                      uint16_t *counts)
{
    unsigned part = 0;
    int64_t sum;
    int place;
    size_t k;

    for (k = 0; k < windows; k++)
        counts[k] = (uint16_t)(taken_of(scores + k * TERSENSE_STEPS, threshold - 1)
                               - taken_of(scores + k * TERSENSE_STEPS, threshold));
    for (place = TERSENSE_COUNT_BITS - 1; place >= 0; place--) {
        const unsigned tried = part + (1u << place);

        for (sum = 0, k = 0; k < windows; k++)
            sum += counts[k] < tried ? counts[k] : tried;
        if (sum <= left)
            part = tried;
    }
    for (k = 0; k < windows; k++)
        left -= counts[k] < part ? counts[k] : part;
    for (k = 0; k < windows; k++)
        if (counts[k] > part) {
            counts[k] = (uint16_t)(part + (left > 0));
            left -= left > 0;
        }
}

int tersense_spend(int16_t *scores, size_t windows, int64_t budget, int whole, uint16_t *counts)
{
    int threshold = LOWEST, place;
    size_t k;

    if (!windows)
        return 1;
    if (!mark(scores, windows, counts) || taken_of_all(scores, windows, TAKEN) > budget)
        return 0;
    temper(scores, windows, !*counts ? of_encoder : whole ? of_whole : of_open);
    for (place = SCORE_BITS - 1; place >= 0; place--)
        if (taken_of_all(scores, windows, threshold + (1 << place) - 1) > budget)
            threshold += 1 << place;
    for (k = 0; k < windows; k++)
        counts[k] = 0;
    if (!whole)
        share_out(scores, windows, threshold, budget - taken_of_all(scores, windows, threshold),
                  counts);
    for (k = 0; k < windows; k++)
        counts[k] = (uint16_t)(counts[k] + taken_of(scores + k * TERSENSE_STEPS, threshold));
    return 1;
}
