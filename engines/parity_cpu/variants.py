"""Bits of the variants as the ops take them (contract 5). A test holds them against
``parity.variants``; they are written out because compiled code is cached by this package's text."""

from __future__ import annotations

RSQRT = 1 << 0
NORM_TREE = 1 << 1
FMA = 1 << 2
SPLIT_K = 1 << 3
UNPAIRED = 1 << 4
LIBM_EXP = 1 << 5
LIBM_SINCOS = 1 << 6
EXP_VIA_DOUBLE = 1 << 7
TWO_PASS = 1 << 8
ROUTER_TREE = 1 << 9
SCALE_ASSOC = 1 << 10
FOLD_P = 1 << 11
DIV_BY_INVERSE = 1 << 12
SPLIT_KEYS = 1 << 13
ZERO_POINT = 1 << 14
