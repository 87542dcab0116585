// Compile CUDA kernel texts with a host C++ compiler and run them on the CPU, bit for bit.
//
// One translation unit a module: this header, then the translated texts (translate.py), then the
// table of kernels. No header of libm or of the C++ library is included, on purpose: it keeps the
// compile short and makes every math call that is not bit-portable a compile error (emu_refuse.h).
//
//   emu_base.h      sanitizers, CUDA keywords, vector types
//   emu_fibers.h    a stack and a register file for each thread that blocks
//   emu_block.h     one block: which thread runs next, barriers, shared memory
//   emu_warp.h      shuffles, votes, __syncwarp, barriers by number
//   emu_launch.h    blocks of a grid over OS threads, the table of kernels
//   emu_float.h     IEEE arithmetic, conversions, bit casts
//   emu_int.h       integer intrinsics, atomics, fences
//   emu_refuse.h    what device and host compute differently
#pragma once
#include "emu_base.h"
#include "emu_fibers.h"
#include "emu_block.h"
#include "emu_warp.h"
#include "emu_launch.h"
#include "emu_float.h"
#include "emu_int.h"
#include "emu_refuse.h"
