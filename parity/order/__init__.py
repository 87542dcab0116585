"""The order of a sum, revealed by masked inputs, judged by noise, and made again on a CPU."""
