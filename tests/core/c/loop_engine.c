/* An engine for the tests of the line protocol: two layers of one value each, logits of 4 tokens;
 * token 3 is refused. It has no capability, but with
 * ROWS: one forward, which taps layer by layer, not row by row;  PREFILL: the same;
 * MORE: a state of parts with odd sizes, on a device that sync speaks to, and logits that are all
 * zero, of either sign.
 * WRONG: it taps another position, and for token 2 another dtype.  NONFINITE: token 2 gives NaN. */
#include "parity_dump.h"

#include <math.h>

enum { VOCAB = 4 };

static const char *forward(parity_dump *tap, long first, const int *tokens, size_t count,
                           float *logits) {
    for (size_t m = 0; m < count; m++)
        if (tokens[m] == 3) return "token 3\nis not liked";
    for (long layer = 0; layer < 2; layer++) {
        for (size_t m = 0; m < count; m++) {
            long pos = first + (long)m;
            float x = (float)(tokens[m] + 10 * layer + 100 * pos);
#ifdef WRONG
            pos++;
#endif
#ifdef NONFINITE
            if (tokens[m] == 2) x = NAN;
#endif
            const char *dtype = "f32";
#ifdef WRONG
            if (tokens[m] == 2) dtype = "f33";
#endif
            parity_tap(tap, pos, layer, "x", dtype, 0, NULL, &x);
        }
    }
    for (size_t m = 0; m < count * VOCAB; m++) {
        logits[m] = (float)((m * 5 + (size_t)first) % 7);
#ifdef MORE
        logits[m] = m % VOCAB == 0 ? -0.0f : 0.0f;
#endif
#ifdef NONFINITE
        if (tokens[m / VOCAB] == 2 && m % VOCAB == 2) logits[m] = NAN;
#endif
    }
    return NULL;
}

static const char *load(const char *model, long room) {
    return room > 100 || strcmp(model, "some model seed 7") ? "too large" : NULL;
}

#ifdef MORE
static signed char odd[3], odd_of_device[3] = {1, 2, 3};
static double wide[2] = {0.5, 2};
static parity_part parts[] = {{"l0_odd", "int8", 1, {3}, odd}, {"l0_wide", "f64", 2, {2, 1}, wide}, {0}};

static void sync(int put) {
    for (int i = 0; i < 3; i++) *(put ? odd_of_device + i : odd + i) = put ? odd[i] : odd_of_device[i];
    memset(odd, 0, sizeof odd * (size_t)put);
}
#endif

int main(void) {
    parity_engine engine;
    memset(&engine, 0, sizeof engine);
    engine.name = "loop", engine.version = "0.1", engine.vocab = VOCAB;
    engine.load = load, engine.step = forward;
#ifdef MORE
    engine.parts = parts, engine.sync = sync;
#endif
#ifdef ROWS
    engine.rows = forward;
#endif
#ifdef PREFILL
    engine.prefill = forward;
#endif
    return parity_main(&engine);
}
