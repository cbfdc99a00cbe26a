/*
 * The first two words of a Cortex-M4: where the stack begins and where the program does. The rest
 * is newlib's, which talks to the emulator through semihosting. A board has its own start-up code.
 */
#include <stdint.h>

extern uint32_t stack_top;
void _start(void);

__attribute__((section(".start"), used)) static const struct {
    uint32_t *stack;
    void (*reset)(void);
} start = {&stack_top, _start};
