#include "rice.h"

#define MOST_ONES 16
#define FRACTION_BITS 6
#define LAST 0x200u /* beside the last term of a row */
#define MINUS 0x100u
#define WEIGHT(term) ((term) >> 5 & 7u)
#define NO_WEIGHT 7u
#define PLACE(term) ((term) & 31u)

#define HALF ((tersense_word)1 << (TERSENSE_CODED_BITS - 1))
#define MASK (HALF - 1 + HALF)

/* Return a number modulo 2^TERSENSE_CODED_BITS, with its sign extended. */
static tersense_word wrap(tersense_word value)
{
    return ((value & MASK) ^ HALF) - HALF;
}

/* Write the lowest bits of a word, the most significant one first. */
static void put(tersense_coder *coder, tersense_word word, unsigned bits)
{
    while (bits) {
        const unsigned room = 8 - coder->filled, part = bits < room ? bits : room;

        bits -= part;
        coder->held = coder->held << part | ((unsigned)(word >> bits) & ((1u << part) - 1));
        coder->filled += part;
        if (coder->filled == 8) {
            coder->emit(coder->to, (uint8_t)coder->held);
            coder->held = coder->filled = 0;
        }
    }
}

/* Write a number, and let the mean of its row and that of all follow. */
static void put_number(tersense_coder *coder, tersense_word number)
{
    tersense_word mean = coder->row < coder->known ? coder->means[coder->row] : coder->running;
    tersense_word rest = (mean + coder->running) >> 5;
    unsigned k = 0, ones;

    for (; rest; rest >>= 1)
        k++;
    ones = number >> k < MOST_ONES ? (unsigned)(number >> k) : MOST_ONES;
    put(coder, ((tersense_word)1 << ones) - 1, ones);
    if (ones < MOST_ONES)
        put(coder, number & (((tersense_word)1 << k) - 1), k + 1);
    else
        put(coder, number, TERSENSE_CODED_BITS);
    coder->means[coder->row] = mean + number - (mean >> 3);
    coder->running += number - (coder->running >> 3);
}

void tersense_coder_start(tersense_coder *coder, tersense_emit emit, void *to)
{
    coder->emit = emit;
    coder->to = to;
    coder->running = (tersense_word)2 << (TERSENSE_CODED_BITS - 1);
    coder->left = 0;
    coder->known = 0;
    coder->held = coder->filled = 0;
}

void tersense_coder_begin(tersense_coder *coder, size_t count)
{
#ifdef TERSENSE_CODED_COUNT_BITS
    put(coder, (tersense_word)count, TERSENSE_CODED_COUNT_BITS);
#else
    (void)count;
#endif
    coder->term = tersense_terms;
    coder->row = 0;
}

void tersense_coder_value(tersense_coder *coder, tersense_coded value)
{
    tersense_word told = 1u << (FRACTION_BITS - 1), fresh, part;
    unsigned term;

    do {
        term = *coder->term++;
        if (WEIGHT(term) != NO_WEIGHT) {
            part = coder->news[PLACE(term)] << WEIGHT(term);
            told = term & MINUS ? told - part : told + part;
        }
    } while (!(term & LAST));
    fresh = wrap((tersense_word)value - (told >> FRACTION_BITS));
    if (coder->row < TERSENSE_KEPT)
        coder->news[coder->row] = fresh;
    if (coder->row == 0) {
        fresh = wrap((tersense_word)value - coder->left);
        coder->left = (tersense_word)value;
    }
    put_number(coder, (fresh << 1 ^ (fresh & HALF ? MASK : 0)) & MASK);
    if (coder->known <= coder->row)
        coder->known = coder->row + 1;
    coder->row++;
}

void tersense_coder_window(tersense_coder *coder, const tersense_value *y, size_t count)
{
    size_t row;

    tersense_coder_begin(coder, count);
    for (row = 0; row < count; row++)
#ifdef TERSENSE_CODE_BITS
        tersense_coder_value(coder, tersense_quantize(row, y[row]));
#else
        tersense_coder_value(coder, y[row]);
#endif
}

void tersense_coder_end(tersense_coder *coder)
{
    if (coder->filled)
        put(coder, 0, 8 - coder->filled);
}
