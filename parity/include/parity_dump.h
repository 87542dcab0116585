/* parity_dump.h: dumps and the line protocol of parity, for engines in C99 or C++11. It needs the
 * standard library alone, and all of it is static: include it where it is used.
 * Part 1 writes dumps: parity_open, parity_tap, parity_close. Part 2 drives an engine: parity_main.
 * docs/header.md explains both; the formats are in docs/dump-format.md and docs/exec.md. */
#ifndef PARITY_DUMP_H
#define PARITY_DUMP_H
#define PARITY_DUMP_H_VERSION 1
#define PARITY_FNV1A64 0xcbf29ce484222325u /* offset basis of the standard hash */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Part 1: the writer ---------------------------------------------------------------------- */

typedef struct parity_text { char *data; size_t size, room; } parity_text; /* grows */
/* size: bytes of an element; exponent: its bits in the upper two bytes of a float */
typedef struct parity_dtype { const char *name; size_t size; unsigned exponent; } parity_dtype;
/* nonfinite: how many NaN and infinities; first: the flat index of the first one */
typedef struct parity_digest { uint64_t hash; size_t nonfinite, first; } parity_digest;
typedef struct parity_dump {
    const char *path, *fields;  /* fields asked for, "k,v,attn"; NULL: all; "": none */
    uint64_t basis;             /* of the hash asked for */
    parity_text lines, stopped; /* the dump; the first key with a value that is not finite */
    long begin, rows;           /* rows > 0: taps are of these positions */
    const char *error;          /* what failed: the dump will not be written */
} parity_dump;

static inline char *parity_reserve(parity_text *text, size_t more) { /* and a byte for a NUL */
    if (!text->data || text->room - text->size <= more) {
        text->room = 2 * text->size + more + 64;
        text->data = (char *)realloc(text->data, text->room);
        if (!text->data) exit((fputs("parity: out of memory\n", stderr), EXIT_FAILURE));
    }
    return text->data + text->size;
}

static inline void parity_say(parity_text *text, const char *format, ...) {
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    const size_t size = (size_t)vsnprintf(NULL, 0, format, values);
    vsnprintf(parity_reserve(text, size), size + 1, format, again);
    text->size += size;
    va_end(again), va_end(values);
}

static inline const char *parity_setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static inline const parity_dtype *parity_find(const char *dtype) { /* size 0: there is none */
    static const parity_dtype known[] = {
        {"f32", 4, 0x7f80}, {"f16", 2, 0x7c00}, {"bf16", 2, 0x7f80}, {"f64", 8, 0x7ff0},
        {"int8", 1, 0}, {"int32", 4, 0}, {"int16", 2, 0}, {"int64", 8, 0}, {"uint8", 1, 0},
        {"uint32", 4, 0}, {"uint16", 2, 0}, {"uint64", 8, 0}, {"bool", 1, 0}, {"", 0, 0}};
    const parity_dtype *found = known;
    while (found->size && strcmp(found->name, dtype)) found++;
    return found;
}

/* By xor with it the place of a byte in an element becomes its place in little-endian order. */
static inline size_t parity_flip(const char *dtype) {
    const uint16_t one = 1;
    return *(const unsigned char *)&one ? 0 : parity_find(dtype)->size - 1;
}

/* FNV-1a-64 of `count` elements, as little-endian bytes. */
static inline parity_digest parity_hash(const char *dtype, const void *data, size_t count,
                                        uint64_t basis) {
    const parity_dtype *type = parity_find(dtype);
    const unsigned char *byte = (const unsigned char *)data;
    parity_digest digest = {basis, 0, 0};
    for (size_t at = 0, flip = parity_flip(dtype); at < count; at++, byte += type->size) {
        unsigned top = 0; /* the upper two bytes */
        for (size_t i = 0; i < type->size; i++) {
            digest.hash = (digest.hash ^ byte[i ^ flip]) * 0x100000001b3u;
            top = top >> 8 | (unsigned)byte[i ^ flip] << 8;
        }
        if (type->exponent && (top & type->exponent) == type->exponent && !digest.nonfinite++)
            digest.first = at;
    }
    return digest;
}

static inline uint64_t parity_basis(const char *hash) { /* 0: no such hash */
    if (!strcmp(hash, "kestrel-fnv")) return 0x14650fb0739d0383u;
    return strcmp(hash, "fnv1a64") ? 0 : PARITY_FNV1A64;
}

static inline int parity_listed(const char *list, const char *field) {
    const size_t size = strlen(field);
    for (; list; list = strchr(list, ','), list += list != NULL)
        if (!strncmp(list, field, size) && (list[size] == ',' || !list[size])) return 1;
    return 0;
}

/* Whether to report a field: one that was asked for, or that parity does not know. */
static inline int parity_wants(const parity_dump *dump, const char *field) {
    static const char known[] =
        "nrm,kraw,knorm,k,ks,v,vs,qrope,attn,gated,qkv,z,conv,hist,qn,kn,beta,g,s,o,gn,ores,fnrm,"
        "rlogits,topk,topp,gate,up,act,down,gs,sh,x,final_normed,logits";
    if (dump->error || (dump->fields && !*dump->fields)) return 0;
    return !dump->fields || parity_listed(dump->fields, field) || !parity_listed(known, field);
}

static inline size_t parity_elements(size_t rank, const size_t *shape) {
    return rank ? shape[rank - 1] * parity_elements(rank - 1, shape) : 1;
}

static inline void parity_type(parity_text *out, const char *dtype, size_t rank,
                               const size_t *shape) {
    parity_say(out, " %s[", dtype);
    for (size_t i = 0; i < rank; i++) parity_say(out, i ? ",%zu" : "%zu", shape[i]);
    parity_say(out, "]");
}

/* A line from a digest that was made elsewhere: on a device, say. Layer -1: outside the layers. */
static inline void parity_tap_digest(parity_dump *dump, long pos, long layer, const char *field,
        const char *dtype, size_t rank, const size_t *shape, parity_digest digest) {
    parity_text *out = &dump->lines;
    const size_t start = out->size;
    if (!parity_wants(dump, field)) return;
    if (dump->rows && (pos < dump->begin || pos >= dump->begin + dump->rows))
        dump->error = "the engine tapped another position";
    parity_say(out, layer < 0 ? "t%ld_" : "t%ld_l%ld_", pos, layer);
    parity_say(out, "%s", field);
    if (digest.nonfinite && !dump->stopped.size)
        parity_say(&dump->stopped, "%s", out->data + start);
    parity_say(out, " %016" PRIx64, digest.hash);
    parity_type(out, dtype, rank, shape);
    if (digest.nonfinite) parity_say(out, " nonfinite=%zu@%zu", digest.nonfinite, digest.first);
    parity_say(out, "\n");
}

/* A line from contiguous values of shape[0] * ... * shape[rank - 1] elements. */
static inline void parity_tap(parity_dump *dump, long pos, long layer, const char *field,
        const char *dtype, size_t rank, const size_t *shape, const void *data) {
    if (!parity_wants(dump, field)) return;
    if (!parity_find(dtype)->size) dump->error = "parity_tap: unknown dtype";
    parity_tap_digest(dump, pos, layer, field, dtype, rank, shape,
                      parity_hash(dtype, data, parity_elements(rank, shape), dump->basis));
}

/* A line `# name value`; the name "segment" begins one. */
static inline void parity_header(parity_dump *dump, const char *name, const char *value) {
    if (!dump->error && strpbrk(value, "\r\n")) dump->error = "a header value has a line break";
    parity_say(&dump->lines, *value ? "# %s %s\n" : "# %s\n", name, value);
}

/* Begins a dump in memory; `path` NULL: PARITY_DUMP. Hash, fields: PARITY_HASH, PARITY_FIELDS. */
static inline void parity_open(parity_dump *dump, const char *path) {
    const char *hash = parity_setting("PARITY_HASH", "fnv1a64");
    memset(dump, 0, sizeof *dump);
    dump->path = path ? path : parity_setting("PARITY_DUMP", "PARITY_DUMP");
    dump->fields = parity_setting("PARITY_FIELDS", NULL);
    dump->basis = parity_basis(hash);
    if (!dump->basis) dump->error = "PARITY_HASH: unknown hash";
    if (!path && !getenv("PARITY_DUMP")) dump->error = "no file is named";
    parity_header(dump, "format", "parity-dump 1");
    parity_header(dump, "hash", hash);
}

/* Writes under a temporary name, then gives the dump its own and returns 0; or says on stderr what
 * failed, leaves none and returns 1. */
static inline int parity_close(parity_dump *dump) {
    FILE *file = dump->error ? NULL : fopen(dump->path, "rb");
    parity_text part = {NULL, 0, 0};
    const char *why = "";
    if (file) dump->error = "exists already", fclose(file);
    parity_say(&part, "%s.%zx.part", dump->path, (size_t)time(NULL) ^ (size_t)&part);
    if (!dump->error) {
        file = fopen(part.data, "wb");
        int good = file && fwrite(dump->lines.data, dump->lines.size, 1, file) == 1;
        if (file && fclose(file)) good = 0;
        if (!good || rename(part.data, dump->path))
            dump->error = "cannot write: ", why = strerror(errno), remove(part.data);
    }
    const int failed = dump->error != NULL;
    if (failed) fprintf(stderr, "parity: %s: %s%s\n", dump->path, dump->error, why);
    free(part.data), free(dump->lines.data), free(dump->stopped.data);
    return memset(dump, 0, sizeof *dump), failed;
}

/* ---- Part 2: an engine, in dump mode and in line mode (docs/exec.md) ------------------------- */

/* A tensor of the state. shape[0] = 0: it has a row for each position held. */
typedef struct parity_part {
    const char *name, *dtype; size_t rank, shape[4]; void *data;
} parity_part;
typedef struct parity_counter { const char *name; unsigned long number; } parity_counter;
/* Feeds tokens at pos, pos + 1, ...: taps them, and fills float[count][vocab]. As load it returns
 * NULL, or one line that says why it refuses, having changed nothing. */
typedef const char *(*parity_forward)(parity_dump *tap, long pos, const int *tokens, size_t count,
                                      float *logits);
typedef struct parity_engine {
    const char *name, *version; /* one word each */
    const char *const *headers; /* name, value, name, value, ..., NULL; or NULL */
    size_t vocab;               /* floats in a row of logits */
    const char *(*load)(const char *model, long positions);
    parity_forward step; /* one token */
    /* From here on NULL is a capability that the engine lacks, or nothing to do. */
    parity_forward prefill, rows; /* many tokens; prefill is else single steps */
    void (*reset)(void), (*mark)(long pos), (*rollback)(long pos);
    parity_part *parts; /* of the state, up to one without a name; "lengths" comes from the loop */
    void (*sync)(int put);    /* before parts are read (0), after they were replaced (1) */
    parity_counter *counters; /* up to one without a name; load sets them to 0 */
} parity_engine;

typedef struct parity_loop { /* room: positions of the KV cache, 0 before load; marked: -1 none */
    const parity_engine *engine;
    parity_dump dump;
    parity_text request, fields, ids, logits, head;
    long room, pos, marked;
    int32_t held; /* "lengths" of a state */
} parity_loop;

static inline void parity_hex(const char *dtype, const void *data, size_t size) {
    const unsigned char *byte = (const unsigned char *)data;
    for (size_t i = 0, flip = parity_flip(dtype); i < size; i++)
        for (int bits = 4; bits >= 0; bits -= 4)
            putchar("0123456789abcdef"[byte[i ^ flip] >> bits & 15]);
}

/* Adds the next line of stdin, with a NUL for its end; 0 where there is none. */
static inline int parity_read(parity_text *text) {
    int byte;
    for (byte = getchar(); byte != EOF && byte != '\n'; byte = getchar())
        *parity_reserve(text, 1) = (char)byte, text->size++;
    return *parity_reserve(text, 1) = 0, text->size++, byte == '\n';
}

/* Token ids between blanks or commas, into `ids`. */
static inline const char *parity_tokens(parity_loop *loop, char *text) {
    loop->ids.size = 0;
    for (char *word = strtok(text, " ,"), *end; word; word = strtok(NULL, " ,")) {
        const long token = strtol(word, &end, 10);
        if (*end || (size_t)token >= loop->engine->vocab) return "a token outside the vocabulary";
        *(int *)(void *)parity_reserve(&loop->ids, sizeof(int)) = (int)token;
        loop->ids.size += sizeof(int);
    }
    return NULL;
}

/* Feeds tokens of `ids` from `at` on; their logits. NULL, or what is wrong. */
static inline const char *parity_feed(parity_loop *loop, parity_forward forward, long pos,
                                      size_t at, size_t count) {
    const int *tokens = (const int *)(void *)loop->ids.data + at;
    const size_t bytes = count * loop->engine->vocab * sizeof(float);
    float *logits = (float *)(void *)parity_reserve(&loop->logits, bytes);
    loop->dump.begin = pos, loop->dump.rows = (long)count;
    const char *wrong = forward(&loop->dump, pos, tokens, count, logits);
    return wrong ? wrong : loop->dump.error;
}

/* A row of a reply: the tapped lines of its position, then the logits. */
static inline void parity_row(parity_loop *loop, long pos, size_t row) {
    const size_t bytes = loop->engine->vocab * sizeof(float);
    printf("row %ld\n", pos);
    for (size_t at = 0, size; at < loop->dump.lines.size; at += size) {
        const char *line = loop->dump.lines.data + at;
        size = strcspn(line, "\n") + 1;
        if (strtol(line + 1, NULL, 10) == pos) fwrite(line, size, 1, stdout);
    }
    printf("logits "), parity_hex("f32", loop->logits.data + row * bytes, bytes), puts("");
}

/* step, prefill, rows: feeds the tokens, all at once or one by one, and prints their rows. */
static inline const char *parity_rows(parity_loop *loop, char request, char *text) {
    const parity_engine *e = loop->engine;
    const parity_forward many = request == 'r' ? e->rows : request == 'p' ? e->prefill : NULL;
    const char *wrong = parity_tokens(loop, text);
    const size_t count = loop->ids.size / sizeof(int), block = many ? count : 1;
    if (wrong) return wrong;
    if (!count || (count > 1 && request == 's')) return "another number of tokens";
    if ((long)count > loop->room - loop->pos) return "past the end of the KV cache";
    for (size_t at = 0; at < count; at += block) {
        loop->dump.lines.size = 0;
        wrong = parity_feed(loop, many ? many : e->step, loop->pos + (long)at, at, block);
        if (wrong) return wrong;
        for (size_t i = 0; i < block; i++) /* of a prompt without a tap the last row alone */
            if (request != 'p' || *loop->dump.fields || at + i + 1 == count)
                parity_row(loop, loop->pos + (long)(at + i), i);
    }
    loop->pos += (long)count;
    return NULL;
}

/* Part i of the state, 0: "lengths"; `part NAME TYPE ` in `head`, the bytes of its values. */
static inline const parity_part *parity_nth(parity_loop *loop, size_t i, size_t *size) {
    static parity_part lengths = {"lengths", "int32", 1, {1}, NULL};
    const parity_part *part = i ? loop->engine->parts + i - 1 : &lengths;
    size_t shape[4];
    if (!part->name) return NULL;
    memcpy(shape, part->shape, sizeof shape);
    if (part->rank && !shape[0]) shape[0] = (size_t)loop->held;
    lengths.data = &loop->held, loop->head.size = 0;
    parity_say(&loop->head, "part %s", part->name);
    parity_type(&loop->head, part->dtype, part->rank, shape), parity_say(&loop->head, " ");
    return *size = parity_elements(part->rank, shape) * parity_find(part->dtype)->size, part;
}

static inline const char *parity_state(parity_loop *loop) {
    const parity_part *part;
    if (loop->engine->sync) loop->engine->sync(0);
    loop->held = (int32_t)loop->pos;
    for (size_t i = 0, size; (part = parity_nth(loop, i, &size)) != NULL; i++) {
        printf(size ? "%s" : "%s-", loop->head.data);
        parity_hex(part->dtype, part->data, size), puts("");
    }
    return NULL;
}

/* Compares lines with the parts of the state; `store`: and takes their bytes over. */
static inline const char *parity_take(parity_loop *loop, const char *line, int store) {
    static const char digits[] = "0123456789abcdef";
    const parity_part *part;
    for (size_t i = 0, size; (part = parity_nth(loop, i, &size)) != NULL; i++) {
        const char *hex = line + loop->head.size, *after = line + strlen(line) + 1;
        if (strncmp(line, loop->head.data, loop->head.size)) return "other parts than in state";
        if (size ? strlen(hex) != 2 * size || hex[strspn(hex, digits)] : strcmp(hex, "-"))
            return "bytes that do not fill the type";
        const size_t flip = parity_flip(part->dtype);
        for (size_t at = 0; at < size && (store || !i); at++, hex += 2) /* lengths in any case */
            ((char *)part->data)[at ^ flip] =
                (char)((strchr(digits, hex[0]) - digits) << 4 | (strchr(digits, hex[1]) - digits));
        if (loop->held < 0 || loop->held > loop->room) return "past the end of the KV cache";
        line = after;
    }
    return strcmp(line, "end") ? "more parts than in state" : NULL;
}

static inline const char *parity_set_state(parity_loop *loop) {
    size_t last = loop->request.size = 0;
    while (parity_read(&loop->request) && strcmp(loop->request.data + last, "end"))
        last = loop->request.size;
    *parity_reserve(&loop->request, 0) = 0; /* where stdin ended before the end: an empty line */
    const char *wrong = parity_take(loop, loop->request.data, 0); /* nothing has changed so far */
    if (wrong) return wrong;
    parity_take(loop, loop->request.data, 1), loop->pos = loop->held;
    if (loop->engine->sync) loop->engine->sync(1);
    return NULL;
}

static inline const char *parity_hello(const parity_engine *e, int newest) {
    if (newest < 2) return "this program speaks protocol 2";
    printf("protocol 2\nengine %s %s\ncapabilities%s%s%s%s\nvocab %zu\n", e->name, e->version,
           e->rows ? " rows" : "", e->rollback ? " rollback" : "",
           e->parts ? " state" : "", e->counters ? " counters" : "", e->vocab);
    for (const char *const *name = e->headers; name && *name; name += 2)
        printf("header %s %s\n", name[0], name[1]);
    return NULL;
}

static inline const char *parity_reset(parity_loop *loop) {
    loop->pos = 0, loop->marked = -1;
    if (loop->engine->reset) loop->engine->reset();
    return NULL;
}

static inline const char *parity_load(parity_loop *loop, const char *model, long room) {
    const parity_engine *e = loop->engine;
    const char *wrong = e->load(model, room);
    if (wrong) return wrong;
    for (parity_counter *one = e->counters; one && one->name; one++) one->number = 0;
    loop->room = room, loop->dump.fields = "";
    return parity_reset(loop);
}

static inline const char *parity_set_tap(parity_loop *loop, char *hash) {
    char *fields = strchr(hash, ' ');
    if (fields) *fields++ = 0;
    const uint64_t basis = parity_basis(hash);
    if (strcmp(hash, "-") && (!fields || !basis)) return "tap HASH FIELDS, or tap -";
    loop->fields.size = 0, loop->dump.basis = basis;
    parity_say(&loop->fields, "%s", fields ? fields : "");
    loop->dump.fields = loop->fields.data;
    return NULL;
}

static inline const char *parity_mark(parity_loop *loop) {
    loop->marked = loop->pos;
    if (loop->engine->mark) loop->engine->mark(loop->pos);
    return NULL;
}

static inline const char *parity_rollback(parity_loop *loop) {
    if (loop->marked < 0) return "there is no mark";
    loop->engine->rollback(loop->marked);
    loop->pos = loop->marked, loop->marked = -1;
    return NULL;
}

static inline const char *parity_answer(parity_loop *loop, char *word) {
    const parity_engine *e = loop->engine;
    const parity_counter *one = e->counters;
    char *rest = word + strcspn(word, " ");
    if (*rest) *rest++ = 0;
    if (!strcmp(word, "hello")) return parity_hello(e, atoi(rest));
    if (!strcmp(word, "load")) {
        const long room = strtol(rest, &rest, 10);
        if (room < 1 || *rest != ' ') return "load POSITIONS MODEL";
        return parity_load(loop, rest + 1, room);
    }
    if (!loop->room) return "load comes first";
    if (!strcmp(word, "tap")) return parity_set_tap(loop, rest);
    if (!strcmp(word, "step") || !strcmp(word, "prefill") || (!strcmp(word, "rows") && e->rows))
        return parity_rows(loop, *word, rest);
    if (!strcmp(word, "reset")) return parity_reset(loop);
    if (!strcmp(word, "mark") && e->rollback) return parity_mark(loop);
    if (!strcmp(word, "rollback") && e->rollback) return parity_rollback(loop);
    if (!strcmp(word, "state") && e->parts) return parity_state(loop);
    if (!strcmp(word, "set-state") && e->parts) return parity_set_state(loop);
    if (strcmp(word, "counters") || !one) return "unknown request";
    for (; one->name; one++) printf("count %s %lu\n", one->name, one->number);
    return NULL;
}

/* Line mode: answers until quit or the end of stdin. */
static inline int parity_serve(parity_loop *loop) {
    for (int more = 1; more && parity_read(&loop->request); loop->request.size = 0) {
        more = strcmp(loop->request.data, "quit");
        const char *wrong = more ? parity_answer(loop, loop->request.data) : NULL;
        printf(wrong ? "error %.*s\n" : "ok\n", (int)strcspn(wrong ? wrong : "", "\r\n"), wrong);
        if (fflush(stdout) || ferror(stdout)) return EXIT_FAILURE;
        loop->dump.error = NULL;
    }
    return EXIT_SUCCESS;
}

static inline size_t parity_greedy(const float *logits, size_t ids) { /* or the first NaN */
    size_t best = 0;
    for (size_t i = 1; i < ids && logits[best] <= logits[best]; i++)
        if (!(logits[i] <= logits[best])) best = i;
    return best;
}

/* Dump mode: the run that the environment tells of. */
static inline int parity_run(parity_loop *loop) {
    const parity_engine *e = loop->engine;
    const char *tokens = parity_setting("PARITY_TOKENS", ""), *wrong;
    const long start = atol(parity_setting("PARITY_PREFILL", ""));
    const long end = start + atol(parity_setting("PARITY_N", ""));
    const long first = *parity_setting("PARITY_DUMP_PREFILL", "0") == '1' ? 0 : start;
    const size_t real = (size_t)atol(parity_setting("PARITY_REAL_IDS", "0")); /* 0: all are */
    const size_t ids = real && real < e->vocab ? real : e->vocab;
    parity_dump *dump = &loop->dump;
    parity_open(dump, NULL);
    parity_header(dump, "engine", e->name), parity_header(dump, "version", e->version);
    for (const char *const *name = e->headers; name && *name; name += 2)
        parity_header(dump, name[0], name[1]);
    parity_header(dump, "tokens", tokens);
    const char *fields = dump->fields;
    parity_say(&loop->request, "%s", tokens);
    wrong = parity_tokens(loop, loop->request.data);
    if (!wrong && (long)(loop->ids.size / sizeof(int)) < end) wrong = "PARITY_TOKENS: too few";
    if (!wrong) wrong = parity_load(loop, parity_setting("PARITY_MODEL", ""), end);
    for (long pos = 0; pos < end && !wrong && !dump->stopped.size; pos++) {
        dump->fields = pos < first ? "" : fields;
        wrong = parity_feed(loop, e->step, pos, (size_t)pos, 1);
        const float *logits = (const float *)(void *)loop->logits.data;
        if (!wrong) parity_tap(dump, pos, -1, "logits", "f32", 1, &e->vocab, logits);
        if (!wrong && pos >= start - 1)
            parity_say(&loop->head, ",%ld:%zu", pos, parity_greedy(logits, ids));
    }
    if (wrong && !dump->error) dump->error = wrong;
    parity_header(dump, "greedy", loop->head.size ? loop->head.data + 1 : "");
    if (dump->stopped.size) parity_header(dump, "stopped", dump->stopped.data);
    return parity_close(dump);
}

/* The whole of main: dump mode where PARITY_DUMP names a file, else line mode. The exit status. */
static inline int parity_main(const parity_engine *engine) {
    static parity_loop loop; /* its memory goes with the program */
    loop.engine = engine;
    return parity_setting("PARITY_DUMP", NULL) ? parity_run(&loop) : parity_serve(&loop);
}

#endif
