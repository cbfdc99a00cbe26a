/*
 * The tables are those of Phi by columns: for every pixel in raster order, how many rows have +1
 * and how many have -1 there (tersense_counts), and which these are (tersense_rows), those with
 * +1 first.
 */
#include "sense.h"

void tersense_begin(tersense_window *window, tersense_value y[TERSENSE_ROWS])
{
    size_t row;

    for (row = 0; row < TERSENSE_ROWS; row++)
        y[row] = 0;
    window->counts = tersense_counts;
    window->rows = tersense_rows;
    window->y = y;
}

void tersense_pixel(tersense_window *window, tersense_sample pixel)
{
    const tersense_row *row = window->rows;
    const tersense_row *minus = row + window->counts[0];
    const tersense_row *end = minus + window->counts[1];
    tersense_value *y = window->y;

    for (; row != minus; row++)
        y[*row] = (tersense_value)(y[*row] + pixel);
    for (; row != end; row++)
        y[*row] = (tersense_value)(y[*row] - pixel);
    window->counts += 2;
    window->rows = end;
}

void tersense_sense(const tersense_sample *pixels, size_t pitch, tersense_value y[TERSENSE_ROWS])
{
    tersense_window window;
    size_t down, across;

    tersense_begin(&window, y);
    for (down = 0; down < TERSENSE_WINDOW; down++) {
        for (across = 0; across < TERSENSE_WINDOW; across++)
            tersense_pixel(&window, pixels[across]);
        pixels += pitch;
    }
}

#ifdef TERSENSE_LARGEST_CODE
/* As below, but the step, and what follows of it, is that of the row, around its middle. */
tersense_code tersense_quantize(size_t row, tersense_value y)
{
    const tersense_dividend step = tersense_steps[row];
    const tersense_reach reach = (tersense_reach)step * TERSENSE_LARGEST_CODE;
    const tersense_reach low = tersense_middles[row] - reach, high = tersense_middles[row] + reach;
    tersense_reach sum = y;

    if (sum < low)
        sum = low;
    if (sum > high)
        sum = high;
    return (tersense_code)((int64_t)(((tersense_dividend)sum - (tersense_dividend)low + step / 2)
                                     / step) - TERSENSE_LARGEST_CODE);
}
#elif defined TERSENSE_CODE_BITS
/* The bias makes the dividend positive, so that the division rounds down; it is by a constant. */
tersense_code tersense_quantize(size_t row, tersense_value y)
{
    tersense_dividend dividend;

    (void)row; /* all have the same step */
    if (y < TERSENSE_LOW)
        y = TERSENSE_LOW;
    if (y > TERSENSE_HIGH)
        y = TERSENSE_HIGH;
    dividend = (tersense_dividend)y + TERSENSE_BIAS;
    return (tersense_code)((int64_t)(dividend / TERSENSE_STEP) - TERSENSE_ZERO);
}
#endif
