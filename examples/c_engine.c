/* The toy model of README.md as a program that parity drives, in dump mode and in line mode.
 * cc -std=c99 -O2 -ffp-contract=off -I "$(parity header)" c_engine.c -o c_engine -lm
 * With -DFAULT=1, 2 or 3 it has a fault, for the tests. */
#include "parity_dump.h"
#include <math.h>
#ifndef FAULT
#define FAULT 0
#endif
enum { LAYERS = 2, DIM = 8, VOCAB = 512 };
#define ROWS(name) {name, "f32", 2, {0, DIM}, NULL} /* one for each position */
static parity_part cache[] = {ROWS("l0_k"), ROWS("l0_v"), ROWS("l1_k"), ROWS("l1_v"), {0}};
static parity_counter counters[] = {{"forward", 0}, {0}};
static long stale = -1; /* of fault 2: the row that is not written */

static float weight(int matrix, int layer, int row, int column) {
    uint32_t h = matrix * 7919u + layer * 104729u + row * 1299709u + column * 15485863u;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    return ((float)((h ^ h >> 12) % 255) - 127.0f) / 128.0f;
}

static float product(int matrix, int layer, int row, const float *x) {
    float sum = 0;
    for (int j = 0; j < DIM; j++) sum += weight(matrix, layer, row, j) * x[j];
    return sum;
}
static float squashed(float x) { return x / (1 + fabsf(x)); }

static void attend(float *attn, int layer, long pos, const float *x) {
    const float *k = cache[2 * layer].data, *v = cache[2 * layer + 1].data;
    memset(attn, 0, DIM * sizeof *attn);
    for (long t = 0; t <= pos; t++, k += DIM, v += DIM) {
        float score = 0;
        for (int i = 0; i < DIM; i++) score += x[i] * k[i];
        for (int i = 0; i < DIM; i++) attn[i] += squashed(score) * v[i];
    }
    for (int i = 0; i < DIM; i++) attn[i] /= (float)(pos + 1);
}

static void one_row(parity_dump *tap, long pos, int token, size_t m, float *logits) {
    static const size_t dim = DIM;
    float x[DIM], attn[DIM];
    for (int i = 0; i < DIM; i++) x[i] = weight(0, 0, token, i);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int v = 0; v < 2; v++) {
            float *row = (float *)cache[2 * layer + v].data + pos * DIM;
            for (int i = 0; i < DIM && pos != stale; i++) row[i] = product(1 + v, layer, i, x);
            parity_tap(tap, pos, layer, v ? "v" : "k", "f32", 1, &dim, row);
        }
        attend(attn, layer, pos, x);
        if (FAULT == 1 && layer == 1 && m == 2) attn[3] = nextafterf(attn[3], 9); /* 1 ULP */
        parity_tap(tap, pos, layer, "attn", "f32", 1, &dim, attn);
        for (int i = 0; i < DIM; i++) x[i] = squashed(x[i] + attn[i]);
        parity_tap(tap, pos, layer, "x", "f32", 1, &dim, x);
    }
    for (int i = 0; i < VOCAB; i++) logits[i] = product(3, 0, i, x);
    if (FAULT == 3 && pos == 4) exit(EXIT_SUCCESS); /* in the middle of its dump */
}

/* The rows of all tokens in one forward; a step is one row. */
static const char *forward(parity_dump *tap, long pos, const int *ids, size_t count, float *out) {
    for (size_t m = 0; m < count; m++) one_row(tap, pos + (long)m, ids[m], m, out + m * VOCAB);
    counters[0].number++, stale = -1;
    return NULL;
}

static const char *load(const char *model, long positions) {
    (void)model; /* it has one of its own */
    for (parity_part *part = cache; part->name; part++) {
        part->data = realloc(part->data, (size_t)positions * DIM * sizeof(float));
        if (!part->data) return "no memory for the KV cache";
    }
    return NULL;
}
static void rollback(long pos) { stale = FAULT == 2 ? pos : -1; } /* rows past it: never read */

int main(void) {
    return parity_main(&(parity_engine){.name = "toy", .version = "1", .vocab = VOCAB, .load = load,
        .headers = (const char *const[]){"model", "toy", NULL}, .step = forward, .rows = forward,
        .rollback = rollback, .parts = cache, .counters = counters});
}
