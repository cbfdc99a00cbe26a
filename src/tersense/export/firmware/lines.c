/*
 * A line belongs to TERSENSE_OPEN rows of windows at most. Row i of windows keeps its sums in part
 * i mod TERSENSE_OPEN of the buffer: when the next row that uses this part begins, row i has had
 * its last line.
 */
#include "lines.h"

/* Add a line of the image to a line of a window: its places from `first` to before `last`. */
static void add_line(size_t line, const tersense_sample *pixels, size_t first, size_t last,
                     tersense_value *y)
{
    tersense_window window;
    size_t place;

    window.counts = tersense_counts + 2 * TERSENSE_WINDOW * line;
    window.rows = tersense_rows + tersense_lines[line];
    window.y = y;
    for (place = 0; place < first; place++) {
        window.rows += window.counts[0] + window.counts[1];
        window.counts += 2;
    }
    for (; place < last; place++)
        tersense_pixel(&window, *pixels++);
}

static tersense_value *sums_of(const tersense_image *image, size_t row)
{
    return image->sums + row % TERSENSE_OPEN * TERSENSE_ACROSS(image->width) * TERSENSE_ROWS;
}

/* Lines count from the first one of the first window, TERSENSE_OFFSET lines above the image. */
static size_t lines_seen(const tersense_image *image)
{
    return image->line + TERSENSE_OFFSET;
}

void tersense_start(tersense_image *image, size_t width, size_t height, tersense_value *sums)
{
    image->sums = sums;
    image->width = width;
    image->height = height;
    image->line = 0;
    image->opened = 0;
    image->taken = 0;
}

static void open_rows(tersense_image *image)
{
    size_t count = TERSENSE_ACROSS(image->width) * TERSENSE_ROWS;

    while (image->opened < TERSENSE_ACROSS(image->height)
           && image->opened * TERSENSE_STRIDE <= lines_seen(image)) {
        tersense_value *y = sums_of(image, image->opened++);
        size_t k;

        for (k = 0; k < count; k++)
            y[k] = 0;
    }
}

void tersense_push_line(tersense_image *image, const tersense_sample *line)
{
    const size_t offset = TERSENSE_OFFSET; /* compilers mock comparisons with a constant 0 */
    size_t seen = lines_seen(image);
    size_t row;

    if (image->line >= image->height)
        return;
    open_rows(image);
    row = seen < TERSENSE_WINDOW ? 0 : (seen - TERSENSE_WINDOW) / TERSENSE_STRIDE + 1;
    for (; row < image->opened; row++) {
        tersense_value *y = sums_of(image, row);
        size_t left; /* of the window, counted as lines are */

        for (left = 0; left < image->width; left += TERSENSE_STRIDE) {
            size_t first = left < offset ? offset - left : 0;
            size_t last = image->width + offset - left;

            if (last > TERSENSE_WINDOW)
                last = TERSENSE_WINDOW;
            add_line(seen - row * TERSENSE_STRIDE, line + (left + first - offset), first, last, y);
            y += TERSENSE_ROWS;
        }
    }
    image->line++;
}

const tersense_value *tersense_take_row(tersense_image *image)
{
    int complete = image->line == image->height
                   || lines_seen(image) >= image->taken * TERSENSE_STRIDE + TERSENSE_WINDOW;

    if (image->taken >= image->opened || !complete)
        return NULL;
    return sums_of(image, image->taken++);
}
