// Constants of the UCRT float routines, as bit patterns. Contract 4.
//
// A decimal quotient gives another double for some of them (C6 and C8 lie one ulp beside the
// nearest), so every value is written by its bits. parity_cpu/ops/elementary_tables.py holds the
// same names without the prefix UCRT_.
#pragma once

// exponential
constexpr unsigned long long UCRT_EXP_SCALE = 0x40571547652b82fe;  // 64/ln 2
constexpr unsigned long long UCRT_EXP_STEP = 0x3f862e42fefa39ef;  // ln 2/64
constexpr unsigned long long UCRT_SIXTH = 0x3fc5555555555555;  // 1/6
constexpr unsigned long long UCRT_EXP_HIGH = 0x40c0000000000000;  // 8192: overflow from here on
constexpr unsigned long long UCRT_EXP_LOW = 0xc0c2c00000000000;  // -9600: zero below
constexpr unsigned long long UCRT_ROUND = 0x4338000000000000;  // 1.5 * 2^52: adding it rounds

// sine and cosine: polynomials
constexpr unsigned long long UCRT_HALF = 0x3fe0000000000000;  // 0.5
constexpr unsigned long long UCRT_ONE = 0x3ff0000000000000;  // 1
constexpr unsigned long long UCRT_S3 = 0xbfc5555555555555;  // -1/3!
constexpr unsigned long long UCRT_S5 = 0x3f81111111111111;  // 1/5!
constexpr unsigned long long UCRT_S7 = 0xbf2a01a01a01a01a;  // -1/7!
constexpr unsigned long long UCRT_S9 = 0x3ec71de3a556c734;  // 1/9!
constexpr unsigned long long UCRT_C4 = 0x3fa5555555555555;  // 1/4!
constexpr unsigned long long UCRT_C6 = 0xbf56c16c16c16c16;  // -1/6!, one ulp short of nearest
constexpr unsigned long long UCRT_C8 = 0x3efa01a01a01a019;  // 1/8!, one ulp short of nearest
constexpr unsigned long long UCRT_C10 = 0xbe927e4fb7789f5c;  // -1/10!

// sine and cosine: reduction
constexpr unsigned long long UCRT_TWO_OVER_PI = 0x3fe45f306dc9c883;  // 2/pi
constexpr unsigned long long UCRT_P1 = 0x3ff921fb54400000;  // pi/2, leading bits
constexpr unsigned long long UCRT_P2 = 0x3dd0b4611a626331;  // pi/2 - P1, nearest
constexpr unsigned long long UCRT_PIO2 = 0x3ff921fb54442d18;  // pi/2, nearest
constexpr unsigned long long UCRT_Q1 = 0x3ff921fb50000000;  // pi/2 in three pieces: first
constexpr unsigned long long UCRT_Q2 = 0x3e5110b460000000;  // second
constexpr unsigned long long UCRT_Q3 = 0x3c91a62633145c06;  // third

// logarithm, binary32
constexpr unsigned UCRT_LOG_LN2_HIGH = 0x3f317000;  // ln 2, leading bits
constexpr unsigned UCRT_LOG_LN2_LOW = 0x3805fdf4;  // ln 2, the rest
constexpr unsigned UCRT_LOG_THIRD = 0x3eaaaaab;  // 1/3
constexpr unsigned UCRT_LOG_NEAR_5 = 0x3c4ccccd;  // 1/80
constexpr unsigned UCRT_LOG_NEAR_3 = 0x3daaaaab;  // 1/12
constexpr unsigned UCRT_LOG_NEAR_BAND = 0x3d800000;  // 0.0625
constexpr unsigned UCRT_F_HALF = 0x3f000000;  // 0.5
constexpr unsigned UCRT_F_ONE = 0x3f800000;  // 1
constexpr unsigned UCRT_F_TWO = 0x40000000;  // 2

// binary32 bit masks and branch bounds, compared with the argument's bits without the sign
constexpr unsigned UCRT_ABS_MASK = 0x7fffffff;
constexpr unsigned UCRT_QUIET_BIT = 0x00400000;
constexpr unsigned UCRT_F32_INF = 0x7f800000;
constexpr unsigned UCRT_F32_MINUS_INF = 0xff800000;
constexpr unsigned UCRT_F32_INVALID = 0xffc00000;  // the NaN that an invalid argument gives
constexpr unsigned UCRT_TRIG_ONE_TERM = 0x39000000;  // 2^-13
constexpr unsigned UCRT_TRIG_TWO_TERMS = 0x3c000000;  // 2^-7
constexpr unsigned UCRT_TRIG_DIRECT = 0x3f490fda;  // the last float up to pi/4
constexpr unsigned UCRT_COS_HUGE = 0x4f490fdb;  // 3.3732595e9, first reduced by Payne-Hanek in cosf
constexpr unsigned UCRT_SIN_HUGE = 0x4b800456;  // 16779436, first reduced by Payne-Hanek in sinf

// 2^(j/64) to nearest, j = 0..63
static __device__ const unsigned long long UCRT_EXP2[64] = {
    0x3ff0000000000000, 0x3ff02c9a3e778061, 0x3ff059b0d3158574, 0x3ff0874518759bc8,
    0x3ff0b5586cf9890f, 0x3ff0e3ec32d3d1a2, 0x3ff11301d0125b51, 0x3ff1429aaea92de0,
    0x3ff172b83c7d517b, 0x3ff1a35beb6fcb75, 0x3ff1d4873168b9aa, 0x3ff2063b88628cd6,
    0x3ff2387a6e756238, 0x3ff26b4565e27cdd, 0x3ff29e9df51fdee1, 0x3ff2d285a6e4030b,
    0x3ff306fe0a31b715, 0x3ff33c08b26416ff, 0x3ff371a7373aa9cb, 0x3ff3a7db34e59ff7,
    0x3ff3dea64c123422, 0x3ff4160a21f72e2a, 0x3ff44e086061892d, 0x3ff486a2b5c13cd0,
    0x3ff4bfdad5362a27, 0x3ff4f9b2769d2ca7, 0x3ff5342b569d4f82, 0x3ff56f4736b527da,
    0x3ff5ab07dd485429, 0x3ff5e76f15ad2148, 0x3ff6247eb03a5585, 0x3ff6623882552225,
    0x3ff6a09e667f3bcd, 0x3ff6dfb23c651a2f, 0x3ff71f75e8ec5f74, 0x3ff75feb564267c9,
    0x3ff7a11473eb0187, 0x3ff7e2f336cf4e62, 0x3ff82589994cce13, 0x3ff868d99b4492ed,
    0x3ff8ace5422aa0db, 0x3ff8f1ae99157736, 0x3ff93737b0cdc5e5, 0x3ff97d829fde4e50,
    0x3ff9c49182a3f090, 0x3ffa0c667b5de565, 0x3ffa5503b23e255d, 0x3ffa9e6b5579fdbf,
    0x3ffae89f995ad3ad, 0x3ffb33a2b84f15fb, 0x3ffb7f76f2fb5e47, 0x3ffbcc1e904bc1d2,
    0x3ffc199bdd85529c, 0x3ffc67f12e57d14b, 0x3ffcb720dcef9069, 0x3ffd072d4a07897c,
    0x3ffd5818dcfba487, 0x3ffda9e603db3285, 0x3ffdfc97337b9b5f, 0x3ffe502ee78b3ff6,
    0x3ffea4afa2a490da, 0x3ffefa1bee615a27, 0x3fff50765b6e4540, 0x3fffa7c1819e90d8};

// log(1 + i/128) cut to 12 significant bits, i = 0..128
static __device__ const unsigned UCRT_LOG_LEAD[129] = {
    0x00000000, 0x3bff0000, 0x3c7e0000, 0x3cbdc000, 0x3cfc1000, 0x3d1cf000, 0x3d3ba000, 0x3d5a1000,
    0x3d785000, 0x3d8b2000, 0x3d9a0000, 0x3da8d000, 0x3db78000, 0x3dc61000, 0x3dd49000, 0x3de2f000,
    0x3df13000, 0x3dff6000, 0x3e06b000, 0x3e0db000, 0x3e14a000, 0x3e1b8000, 0x3e226000, 0x3e293000,
    0x3e2ff000, 0x3e36b000, 0x3e3d5000, 0x3e43f000, 0x3e4a9000, 0x3e511000, 0x3e579000, 0x3e5e1000,
    0x3e647000, 0x3e6ae000, 0x3e713000, 0x3e778000, 0x3e7dc000, 0x3e820000, 0x3e851000, 0x3e882000,
    0x3e8b3000, 0x3e8e4000, 0x3e914000, 0x3e944000, 0x3e974000, 0x3e9a3000, 0x3e9d3000, 0x3ea02000,
    0x3ea30000, 0x3ea5f000, 0x3ea8d000, 0x3eabb000, 0x3eae8000, 0x3eb16000, 0x3eb43000, 0x3eb70000,
    0x3eb9c000, 0x3ebc9000, 0x3ebf5000, 0x3ec21000, 0x3ec4d000, 0x3ec78000, 0x3eca3000, 0x3ecce000,
    0x3ecf9000, 0x3ed24000, 0x3ed4e000, 0x3ed78000, 0x3eda2000, 0x3edcc000, 0x3edf5000, 0x3ee1e000,
    0x3ee47000, 0x3ee70000, 0x3ee99000, 0x3eec1000, 0x3eeea000, 0x3ef12000, 0x3ef3a000, 0x3ef61000,
    0x3ef89000, 0x3efb0000, 0x3efd7000, 0x3effe000, 0x3f012000, 0x3f025000, 0x3f039000, 0x3f04c000,
    0x3f05f000, 0x3f072000, 0x3f084000, 0x3f097000, 0x3f0aa000, 0x3f0bc000, 0x3f0cf000, 0x3f0e1000,
    0x3f0f4000, 0x3f106000, 0x3f118000, 0x3f12a000, 0x3f13c000, 0x3f14e000, 0x3f160000, 0x3f172000,
    0x3f183000, 0x3f195000, 0x3f1a7000, 0x3f1b8000, 0x3f1c9000, 0x3f1db000, 0x3f1ec000, 0x3f1fd000,
    0x3f20e000, 0x3f21f000, 0x3f230000, 0x3f241000, 0x3f252000, 0x3f263000, 0x3f273000, 0x3f284000,
    0x3f295000, 0x3f2a5000, 0x3f2b5000, 0x3f2c6000, 0x3f2d6000, 0x3f2e6000, 0x3f2f7000, 0x3f307000,
    0x3f317000};

// the rest of log(1 + i/128), cut to 24 bits
static __device__ const unsigned UCRT_LOG_TAIL[129] = {
    0x00000000, 0x3429ac41, 0x35a8b0fc, 0x368d83ea, 0x361b0e78, 0x3687b9fe, 0x3631ec65, 0x36dd7119,
    0x35c30045, 0x379b7751, 0x37ebcb0d, 0x37839f83, 0x37528ae5, 0x37a2eb18, 0x36da7495, 0x36a91eb7,
    0x3783b715, 0x371131db, 0x383f3e68, 0x38156a97, 0x38297c0f, 0x387e100f, 0x3815b665, 0x37e5e3a1,
    0x38183853, 0x35fe719d, 0x38448108, 0x38503290, 0x373539e8, 0x385e0ff1, 0x3864a740, 0x3786742d,
    0x387be3cd, 0x3685ad3e, 0x3803b715, 0x37adcbdc, 0x380c36af, 0x371652d3, 0x38927139, 0x38c5fcd7,
    0x38ae55d5, 0x3818c169, 0x38a0fde7, 0x38ad09ef, 0x3862bae1, 0x38eecd4c, 0x3798aad2, 0x37421a1a,
    0x38c5e10e, 0x37bf2aee, 0x382d872d, 0x37ee2e8a, 0x38dedfac, 0x3802f2b9, 0x38481e9b, 0x380eaa2b,
    0x38ebfb5d, 0x38255fdd, 0x38783b82, 0x3851da1e, 0x374e1b05, 0x388f439b, 0x38ca0e10, 0x38cac08b,
    0x3891f65f, 0x378121cb, 0x386c9a9a, 0x38949923, 0x38777bcc, 0x37b12d26, 0x38a6ced3, 0x38ebd3e6,
    0x38fbe3cd, 0x38d785c2, 0x387e7e00, 0x38f392c5, 0x37d40983, 0x38081a7c, 0x3784c3ad, 0x38cce923,
    0x380f5faf, 0x3891fd38, 0x38ac47bc, 0x3897042b, 0x392952d2, 0x396fced4, 0x37f97073, 0x385e9eae,
    0x3865c84a, 0x38130ba3, 0x3979cf16, 0x3938cac9, 0x38c3d2f4, 0x39755dec, 0x38e6b467, 0x395c0fb8,
    0x383ebce0, 0x38dcd192, 0x39186bdf, 0x392de74c, 0x392f0944, 0x391bff61, 0x38e9ed44, 0x38686dc8,
    0x396b99a7, 0x39099c89, 0x37a27673, 0x390bdaa3, 0x397069ab, 0x388449ff, 0x39013538, 0x392dc268,
    0x3947f423, 0x394ff17c, 0x3945e10e, 0x3929e8f5, 0x38f85db0, 0x38735f99, 0x396c08db, 0x3909e600,
    0x37b4996f, 0x391233cc, 0x397cead9, 0x38adb5cd, 0x3920261a, 0x3958ee36, 0x35aa4905, 0x37cbd11e,
    0x3805fdf4};

// 256/(128 + i) to nearest
static __device__ const unsigned UCRT_LOG_INVERSE[129] = {
    0x40000000, 0x3ffe03f8, 0x3ffc0fc1, 0x3ffa232d, 0x3ff83e10, 0x3ff6603e, 0x3ff4898d, 0x3ff2b9d6,
    0x3ff0f0f1, 0x3fef2eb7, 0x3fed7304, 0x3febbdb3, 0x3fea0ea1, 0x3fe865ac, 0x3fe6c2b4, 0x3fe52598,
    0x3fe38e39, 0x3fe1fc78, 0x3fe07038, 0x3fdee95c, 0x3fdd67c9, 0x3fdbeb62, 0x3fda740e, 0x3fd901b2,
    0x3fd79436, 0x3fd62b81, 0x3fd4c77b, 0x3fd3680d, 0x3fd20d21, 0x3fd0b6a0, 0x3fcf6475, 0x3fce168a,
    0x3fcccccd, 0x3fcb8728, 0x3fca4588, 0x3fc907da, 0x3fc7ce0c, 0x3fc6980c, 0x3fc565c8, 0x3fc43730,
    0x3fc30c31, 0x3fc1e4bc, 0x3fc0c0c1, 0x3fbfa030, 0x3fbe82fa, 0x3fbd6910, 0x3fbc5264, 0x3fbb3ee7,
    0x3fba2e8c, 0x3fb92144, 0x3fb81703, 0x3fb70fbb, 0x3fb60b61, 0x3fb509e7, 0x3fb40b41, 0x3fb30f63,
    0x3fb21643, 0x3fb11fd4, 0x3fb02c0b, 0x3faf3ade, 0x3fae4c41, 0x3fad602b, 0x3fac7692, 0x3fab8f6a,
    0x3faaaaab, 0x3fa9c84a, 0x3fa8e83f, 0x3fa80a81, 0x3fa72f05, 0x3fa655c4, 0x3fa57eb5, 0x3fa4a9cf,
    0x3fa3d70a, 0x3fa3065e, 0x3fa237c3, 0x3fa16b31, 0x3fa0a0a1, 0x3f9fd80a, 0x3f9f1166, 0x3f9e4cad,
    0x3f9d89d9, 0x3f9cc8e1, 0x3f9c09c1, 0x3f9b4c70, 0x3f9a90e8, 0x3f99d723, 0x3f991f1a, 0x3f9868c8,
    0x3f97b426, 0x3f97012e, 0x3f964fda, 0x3f95a025, 0x3f94f209, 0x3f944581, 0x3f939a86, 0x3f92f114,
    0x3f924925, 0x3f91a2b4, 0x3f90fdbc, 0x3f905a38, 0x3f8fb824, 0x3f8f177a, 0x3f8e7835, 0x3f8dda52,
    0x3f8d3dcb, 0x3f8ca29c, 0x3f8c08c1, 0x3f8b7034, 0x3f8ad8f3, 0x3f8a42f8, 0x3f89ae41, 0x3f891ac7,
    0x3f888889, 0x3f87f781, 0x3f8767ab, 0x3f86d905, 0x3f864b8a, 0x3f85bf37, 0x3f853408, 0x3f84a9fa,
    0x3f842108, 0x3f839930, 0x3f83126f, 0x3f828cc0, 0x3f820821, 0x3f81848e, 0x3f810204, 0x3f808081,
    0x3f800000};

// 64 bits of floor(2/pi * 2^250) from each of its first 29 byte offsets, for Payne-Hanek
static __device__ const unsigned long long UCRT_TWO_OVER_PI_WORDS[29] = {
    0x07f9458eaf7aef15, 0x4107f9458eaf7aef, 0x0e4107f9458eaf7a, 0xf10e4107f9458eaf,
    0x64f10e4107f9458e, 0x5664f10e4107f945, 0x8a5664f10e4107f9, 0x6d8a5664f10e4107,
    0x036d8a5664f10e41, 0x77036d8a5664f10e, 0xd377036d8a5664f1, 0xd4d377036d8a5664,
    0x47d4d377036d8a56, 0x5f47d4d377036d8a, 0x9d5f47d4d377036d, 0xf09d5f47d4d37703,
    0xa7f09d5f47d4d377, 0x54a7f09d5f47d4d3, 0x1054a7f09d5f47d4, 0x391054a7f09d5f47,
    0xb9391054a7f09d5f, 0x0db9391054a7f09d, 0xe60db9391054a7f0, 0x8be60db9391054a7,
    0x028be60db9391054, 0x00028be60db93910, 0x0000028be60db939, 0x000000028be60db9,
    0x00000000028be60d};
