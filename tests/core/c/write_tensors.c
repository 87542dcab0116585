/* Writes a dump of the tensors on stdin: "POS LAYER FIELD DTYPE RANK DIMS...\n", then the bytes. */
#include "parity_dump.h"

int main(void) {
    parity_dump dump;
    long pos, layer;
    char field[64], dtype[16];
    size_t rank, shape[8];
    parity_open(&dump, NULL);
    while (scanf("%ld %ld %63s %15s %zu", &pos, &layer, field, dtype, &rank) == 5) {
        for (size_t i = 0; i < rank; i++)
            if (scanf("%zu", &shape[i]) != 1) return 3;
        const size_t size = parity_elements(rank, shape) * parity_find(dtype)->size;
        unsigned char *data = (unsigned char *)malloc(size + 1); /* not one byte more than is said */
        if (!data || getchar() != '\n' || fread(data, 1, size, stdin) != size) return 3;
        data = (unsigned char *)realloc(data, size ? size : 1);
        parity_tap(&dump, pos, layer, field, dtype, rank, shape, data);
        free(data);
    }
    return parity_close(&dump);
}
