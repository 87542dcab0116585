"""Constants of the UCRT float routines, as bit patterns. Contract 4.

A decimal quotient gives another double for some of them (C6 and C8 lie one ulp beside the nearest),
so every value is written by its bits. `parity_cuda/kernels/elementary_tables.cuh` holds the same
names with the prefix UCRT_.
"""

import numpy as np
import numpy.typing as npt


def _f64(bits: int) -> np.float64:
    return np.float64(np.uint64(bits).view(np.float64))


def _f32(bits: int) -> np.float32:
    return np.float32(np.uint32(bits).view(np.float32))


def _f64_table(words: str) -> npt.NDArray[np.float64]:
    return np.array([int(word, 16) for word in words.split()], np.uint64).view(np.float64)


def _f32_table(words: str) -> npt.NDArray[np.float32]:
    return np.array([int(word, 16) for word in words.split()], np.uint32).view(np.float32)


# exponential
EXP_SCALE = _f64(0x40571547652B82FE)  # 64/ln 2
EXP_STEP = _f64(0x3F862E42FEFA39EF)  # ln 2/64
SIXTH = _f64(0x3FC5555555555555)  # 1/6
EXP_HIGH = _f64(0x40C0000000000000)  # 8192: overflow from here on
EXP_LOW = _f64(0xC0C2C00000000000)  # -9600: zero below
ROUND = _f64(0x4338000000000000)  # 1.5 * 2^52: adding it rounds

# sine and cosine: polynomials
HALF = _f64(0x3FE0000000000000)  # 0.5
ONE = _f64(0x3FF0000000000000)  # 1
S3 = _f64(0xBFC5555555555555)  # -1/3!
S5 = _f64(0x3F81111111111111)  # 1/5!
S7 = _f64(0xBF2A01A01A01A01A)  # -1/7!
S9 = _f64(0x3EC71DE3A556C734)  # 1/9!
C4 = _f64(0x3FA5555555555555)  # 1/4!
C6 = _f64(0xBF56C16C16C16C16)  # -1/6!, one ulp short of nearest
C8 = _f64(0x3EFA01A01A01A019)  # 1/8!, one ulp short of nearest
C10 = _f64(0xBE927E4FB7789F5C)  # -1/10!

# sine and cosine: reduction
TWO_OVER_PI = _f64(0x3FE45F306DC9C883)  # 2/pi
P1 = _f64(0x3FF921FB54400000)  # pi/2, leading bits
P2 = _f64(0x3DD0B4611A626331)  # pi/2 - P1, nearest
PIO2 = _f64(0x3FF921FB54442D18)  # pi/2, nearest
Q1 = _f64(0x3FF921FB50000000)  # pi/2 in three pieces: first
Q2 = _f64(0x3E5110B460000000)  # second
Q3 = _f64(0x3C91A62633145C06)  # third

# logarithm, binary32
LOG_LN2_HIGH = _f32(0x3F317000)  # ln 2, leading bits
LOG_LN2_LOW = _f32(0x3805FDF4)  # ln 2, the rest
LOG_THIRD = _f32(0x3EAAAAAB)  # 1/3
LOG_NEAR_5 = _f32(0x3C4CCCCD)  # 1/80
LOG_NEAR_3 = _f32(0x3DAAAAAB)  # 1/12
LOG_NEAR_BAND = _f32(0x3D800000)  # 0.0625
F_HALF = _f32(0x3F000000)  # 0.5
F_ONE = _f32(0x3F800000)  # 1
F_TWO = _f32(0x40000000)  # 2

# binary32 bit masks and branch bounds, compared with the argument's bits without the sign
ABS_MASK = np.uint32(0x7FFFFFFF)
QUIET_BIT = np.uint32(0x00400000)
F32_INF = np.uint32(0x7F800000)
F32_MINUS_INF = np.uint32(0xFF800000)
F32_INVALID = np.uint32(0xFFC00000)  # the NaN that an invalid argument gives
TRIG_ONE_TERM = np.uint32(0x39000000)  # 2^-13
TRIG_TWO_TERMS = np.uint32(0x3C000000)  # 2^-7
TRIG_DIRECT = np.uint32(0x3F490FDA)  # the last float up to pi/4
COS_HUGE = np.uint32(0x4F490FDB)  # 3.3732595e9, the first that cosf reduces by Payne-Hanek
SIN_HUGE = np.uint32(0x4B800456)  # 16779436, the first that sinf reduces by Payne-Hanek

# 2^(j/64) to nearest, j = 0..63
EXP2 = _f64_table(
    """
    3ff0000000000000 3ff02c9a3e778061 3ff059b0d3158574 3ff0874518759bc8 3ff0b5586cf9890f
    3ff0e3ec32d3d1a2 3ff11301d0125b51 3ff1429aaea92de0 3ff172b83c7d517b 3ff1a35beb6fcb75
    3ff1d4873168b9aa 3ff2063b88628cd6 3ff2387a6e756238 3ff26b4565e27cdd 3ff29e9df51fdee1
    3ff2d285a6e4030b 3ff306fe0a31b715 3ff33c08b26416ff 3ff371a7373aa9cb 3ff3a7db34e59ff7
    3ff3dea64c123422 3ff4160a21f72e2a 3ff44e086061892d 3ff486a2b5c13cd0 3ff4bfdad5362a27
    3ff4f9b2769d2ca7 3ff5342b569d4f82 3ff56f4736b527da 3ff5ab07dd485429 3ff5e76f15ad2148
    3ff6247eb03a5585 3ff6623882552225 3ff6a09e667f3bcd 3ff6dfb23c651a2f 3ff71f75e8ec5f74
    3ff75feb564267c9 3ff7a11473eb0187 3ff7e2f336cf4e62 3ff82589994cce13 3ff868d99b4492ed
    3ff8ace5422aa0db 3ff8f1ae99157736 3ff93737b0cdc5e5 3ff97d829fde4e50 3ff9c49182a3f090
    3ffa0c667b5de565 3ffa5503b23e255d 3ffa9e6b5579fdbf 3ffae89f995ad3ad 3ffb33a2b84f15fb
    3ffb7f76f2fb5e47 3ffbcc1e904bc1d2 3ffc199bdd85529c 3ffc67f12e57d14b 3ffcb720dcef9069
    3ffd072d4a07897c 3ffd5818dcfba487 3ffda9e603db3285 3ffdfc97337b9b5f 3ffe502ee78b3ff6
    3ffea4afa2a490da 3ffefa1bee615a27 3fff50765b6e4540 3fffa7c1819e90d8
    """
)

# log(1 + i/128) cut to 12 significant bits, i = 0..128
LOG_LEAD = _f32_table(
    """
    00000000 3bff0000 3c7e0000 3cbdc000 3cfc1000 3d1cf000 3d3ba000 3d5a1000 3d785000 3d8b2000
    3d9a0000 3da8d000 3db78000 3dc61000 3dd49000 3de2f000 3df13000 3dff6000 3e06b000 3e0db000
    3e14a000 3e1b8000 3e226000 3e293000 3e2ff000 3e36b000 3e3d5000 3e43f000 3e4a9000 3e511000
    3e579000 3e5e1000 3e647000 3e6ae000 3e713000 3e778000 3e7dc000 3e820000 3e851000 3e882000
    3e8b3000 3e8e4000 3e914000 3e944000 3e974000 3e9a3000 3e9d3000 3ea02000 3ea30000 3ea5f000
    3ea8d000 3eabb000 3eae8000 3eb16000 3eb43000 3eb70000 3eb9c000 3ebc9000 3ebf5000 3ec21000
    3ec4d000 3ec78000 3eca3000 3ecce000 3ecf9000 3ed24000 3ed4e000 3ed78000 3eda2000 3edcc000
    3edf5000 3ee1e000 3ee47000 3ee70000 3ee99000 3eec1000 3eeea000 3ef12000 3ef3a000 3ef61000
    3ef89000 3efb0000 3efd7000 3effe000 3f012000 3f025000 3f039000 3f04c000 3f05f000 3f072000
    3f084000 3f097000 3f0aa000 3f0bc000 3f0cf000 3f0e1000 3f0f4000 3f106000 3f118000 3f12a000
    3f13c000 3f14e000 3f160000 3f172000 3f183000 3f195000 3f1a7000 3f1b8000 3f1c9000 3f1db000
    3f1ec000 3f1fd000 3f20e000 3f21f000 3f230000 3f241000 3f252000 3f263000 3f273000 3f284000
    3f295000 3f2a5000 3f2b5000 3f2c6000 3f2d6000 3f2e6000 3f2f7000 3f307000 3f317000
    """
)

# the rest of log(1 + i/128), cut to 24 bits
LOG_TAIL = _f32_table(
    """
    00000000 3429ac41 35a8b0fc 368d83ea 361b0e78 3687b9fe 3631ec65 36dd7119 35c30045 379b7751
    37ebcb0d 37839f83 37528ae5 37a2eb18 36da7495 36a91eb7 3783b715 371131db 383f3e68 38156a97
    38297c0f 387e100f 3815b665 37e5e3a1 38183853 35fe719d 38448108 38503290 373539e8 385e0ff1
    3864a740 3786742d 387be3cd 3685ad3e 3803b715 37adcbdc 380c36af 371652d3 38927139 38c5fcd7
    38ae55d5 3818c169 38a0fde7 38ad09ef 3862bae1 38eecd4c 3798aad2 37421a1a 38c5e10e 37bf2aee
    382d872d 37ee2e8a 38dedfac 3802f2b9 38481e9b 380eaa2b 38ebfb5d 38255fdd 38783b82 3851da1e
    374e1b05 388f439b 38ca0e10 38cac08b 3891f65f 378121cb 386c9a9a 38949923 38777bcc 37b12d26
    38a6ced3 38ebd3e6 38fbe3cd 38d785c2 387e7e00 38f392c5 37d40983 38081a7c 3784c3ad 38cce923
    380f5faf 3891fd38 38ac47bc 3897042b 392952d2 396fced4 37f97073 385e9eae 3865c84a 38130ba3
    3979cf16 3938cac9 38c3d2f4 39755dec 38e6b467 395c0fb8 383ebce0 38dcd192 39186bdf 392de74c
    392f0944 391bff61 38e9ed44 38686dc8 396b99a7 39099c89 37a27673 390bdaa3 397069ab 388449ff
    39013538 392dc268 3947f423 394ff17c 3945e10e 3929e8f5 38f85db0 38735f99 396c08db 3909e600
    37b4996f 391233cc 397cead9 38adb5cd 3920261a 3958ee36 35aa4905 37cbd11e 3805fdf4
    """
)

# 256/(128 + i) to nearest
LOG_INVERSE = _f32_table(
    """
    40000000 3ffe03f8 3ffc0fc1 3ffa232d 3ff83e10 3ff6603e 3ff4898d 3ff2b9d6 3ff0f0f1 3fef2eb7
    3fed7304 3febbdb3 3fea0ea1 3fe865ac 3fe6c2b4 3fe52598 3fe38e39 3fe1fc78 3fe07038 3fdee95c
    3fdd67c9 3fdbeb62 3fda740e 3fd901b2 3fd79436 3fd62b81 3fd4c77b 3fd3680d 3fd20d21 3fd0b6a0
    3fcf6475 3fce168a 3fcccccd 3fcb8728 3fca4588 3fc907da 3fc7ce0c 3fc6980c 3fc565c8 3fc43730
    3fc30c31 3fc1e4bc 3fc0c0c1 3fbfa030 3fbe82fa 3fbd6910 3fbc5264 3fbb3ee7 3fba2e8c 3fb92144
    3fb81703 3fb70fbb 3fb60b61 3fb509e7 3fb40b41 3fb30f63 3fb21643 3fb11fd4 3fb02c0b 3faf3ade
    3fae4c41 3fad602b 3fac7692 3fab8f6a 3faaaaab 3fa9c84a 3fa8e83f 3fa80a81 3fa72f05 3fa655c4
    3fa57eb5 3fa4a9cf 3fa3d70a 3fa3065e 3fa237c3 3fa16b31 3fa0a0a1 3f9fd80a 3f9f1166 3f9e4cad
    3f9d89d9 3f9cc8e1 3f9c09c1 3f9b4c70 3f9a90e8 3f99d723 3f991f1a 3f9868c8 3f97b426 3f97012e
    3f964fda 3f95a025 3f94f209 3f944581 3f939a86 3f92f114 3f924925 3f91a2b4 3f90fdbc 3f905a38
    3f8fb824 3f8f177a 3f8e7835 3f8dda52 3f8d3dcb 3f8ca29c 3f8c08c1 3f8b7034 3f8ad8f3 3f8a42f8
    3f89ae41 3f891ac7 3f888889 3f87f781 3f8767ab 3f86d905 3f864b8a 3f85bf37 3f853408 3f84a9fa
    3f842108 3f839930 3f83126f 3f828cc0 3f820821 3f81848e 3f810204 3f808081 3f800000
    """
)

# floor(2/pi * 2^250); Payne-Hanek reads 64 of its bits from any of the first 29 byte offsets
_TWO_OVER_PI_250 = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E4107F9458EAF7AEF15
TWO_OVER_PI_WORDS = np.array(
    [(_TWO_OVER_PI_250 >> 8 * byte) & 0xFFFFFFFFFFFFFFFF for byte in range(29)], np.uint64
)
