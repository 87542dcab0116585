// q4_int: Q4_0 blocks times int16 blocks, and rows of the chosen experts. Contract 1.4.
#pragma once
#include "async_copy.cuh"
#include "q4.cuh"

#define INPUT_PITCH 20  // words of a block of 32 int16 and its padding: lanes meet no bank twice
#define PANEL_ROWS 16   // weight rows of a task: a lane has every fourth
#define TASK_UNITS 4
#define HELD_TASKS 2  // on their way from memory while others are worked on

// Weight rows that lie one after the other, and where their terms go: row r, block b to terms[r *
// stride + b]. input, scales: the int16 and their scales, in shared memory, INPUT_PITCH words a
// block.
struct Panel {
  const unsigned char* qs;
  const unsigned short* d;
  const int* input;
  const float* scales;
  float* terms;
};

// 64 units of a panel for a warp: 16 rows, 8 blocks; a lane has one block of four rows.
struct Task {
  uint4 word[TASK_UNITS];
  unsigned short d[TASK_UNITS];
};

// Which one: blocks from 8 * chunk and rows from PANEL_ROWS * group of a panel.
struct Place {
  int panel, chunk, group;
};

// All terms of `count` panels of `height` rows of nb blocks, by the first `warps` warps; no other may
// call. panel_of(i) gives panel i. STAGED: the weights are in shared memory.
// No unit is left out where rows or blocks end: the last one is made again, and not written.
template <bool STAGED, class PanelOf>
struct PanelTerms {
  PanelOf panel_of;
  int count, height, nb, stride, variants, warps, chunks, groups;
  Place asked, now;
  Task held[HELD_TASKS];

  __device__ PanelTerms(PanelOf of, int count_, int height_, int nb_, int stride_, int variants_,
                        int warps_)
      : panel_of(of), count(count_), height(height_), nb(nb_), stride(stride_),
        variants(variants_), warps(warps_) {
    chunks = (nb + 7) / 8, groups = (height + PANEL_ROWS - 1) / PANEL_ROWS;
    now = {(int)threadIdx.x / 32, 0, 0};
    wrap(now);
    asked = now;
  }

  // Warps go over panels first, then over blocks.
  __device__ void wrap(Place& at) const {
    for (; at.panel >= count; at.panel -= count) ++at.chunk;
  }

  __device__ void advance(Place& at) const {
    if (++at.group < groups) return;
    at.group = 0, at.panel += warps;
    wrap(at);
  }

  __device__ void load(Task& task) {
    if (asked.chunk >= chunks) return;
    const Panel panel = panel_of(asked.panel);
    const int lane = threadIdx.x % 32, row = asked.group * PANEL_ROWS + lane / 8;
    const int b = min(asked.chunk * 8 + lane % 8, nb - 1);
#pragma unroll
    for (int s = 0; s < TASK_UNITS; ++s) {
      const int unit = min(row + 4 * s, height - 1) * nb + b;
      const unsigned char* from = panel.qs + (long long)unit * 16;
      task.word[s] = STAGED ? *(const uint4*)from : load_once(from);
      task.d[s] = STAGED ? panel.d[unit] : __ldg(panel.d + unit);
    }
    advance(asked);
  }

  __device__ void use(const Task& task) {
    const Panel panel = panel_of(now.panel);
    const int lane = threadIdx.x % 32, row = now.group * PANEL_ROWS + lane / 8;
    const int b = now.chunk * 8 + lane % 8, at = min(b, nb - 1);
    const Int16Block x(panel.input + at * INPUT_PITCH);
    const float s_a = panel.scales[at];
    const unsigned flip = 0x80808080u | (unsigned)nb >> 31;
    float term[TASK_UNITS];  // a condition among them would make one unit wait for the other
#pragma unroll
    for (int s = 0; s < TASK_UNITS; ++s)
      // step 2: (dot * s_w) * s_a
      term[s] = scaled_dot(x.dot(task.word[s], flip), q4_scale(task.d[s]), s_a, variants);
    if (b < nb)
#pragma unroll
      for (int s = 0; s < TASK_UNITS; ++s)
        if (row + 4 * s < height) panel.terms[(row + 4 * s) * stride + b] = term[s];
    advance(now);
  }

  // The first loads; what is in shared memory is not waited for.
  __device__ void start() {
    if constexpr (!STAGED) {
#pragma unroll
      for (int i = 0; i < HELD_TASKS; ++i) load(held[i]);
    }
  }

  __device__ void run() {
    while (now.chunk < chunks) {
      if constexpr (STAGED) {
        load(held[0]);
        use(held[0]);
      } else {
#pragma unroll
        for (int i = 0; i < HELD_TASKS; ++i) {
          if (now.chunk >= chunks) break;
          use(held[i]);
          load(held[i]);
        }
      }
    }
  }
};

// Copies nb blocks of int16 and their scales, by `count` threads from number `me` on; copy_commit
// and copy_wait are the caller's.
__device__ __forceinline__ void stage_int16(int* input, float* scales, const short* q,
                                            const float* s_a, int nb, int me, int count) {
  for (int i = me; i < nb * 4; i += count)
    copy_16((float*)(input + i / 4 * INPUT_PITCH + i % 4 * 4), (const float*)q + i * 4);
  for (int i = me; i < nb; i += count) copy_4(scales + i, s_a + i);
}
