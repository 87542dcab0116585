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
// block. p: what terms are multiplied by under fold_p, null without.
struct Panel {
  const unsigned char* qs;
  const unsigned short* d;
  const int* input;
  const float* scales;
  float* terms;
  const float* p;
};

// 64 units of a panel for a warp: 16 rows, 8 blocks; a lane has one block of four rows.
struct Task {
  uint4 word[TASK_UNITS];
  unsigned short d[TASK_UNITS];
};

// All terms of `count` panels of `height` rows of nb blocks, by the first `warps` warps. panel_of(i)
// gives panel i. STAGED: the weights are in shared memory.
template <bool STAGED, class PanelOf>
struct PanelTerms {
  PanelOf panel_of;
  int height, nb, stride, variants, warps;
  int chunks, groups, tasks;
  Task held[HELD_TASKS];

  __device__ PanelTerms(PanelOf of, int count, int height_, int nb_, int stride_, int variants_,
                        int warps_)
      : panel_of(of), height(height_), nb(nb_), stride(stride_), variants(variants_), warps(warps_) {
    chunks = (nb + 7) / 8, groups = (height + PANEL_ROWS - 1) / PANEL_ROWS;
    tasks = count * groups * chunks;
  }

  // Panel, first row and block of a lane's units in task number u.
  __device__ void place(int u, int& panel, int& row, int& b) const {
    const int rest = u / chunks, lane = threadIdx.x % 32;
    panel = rest / groups;
    row = (rest - panel * groups) * PANEL_ROWS + lane / 8;
    b = (u - rest * chunks) * 8 + lane % 8;
  }

  __device__ void load(Task& task, int u) const {
    if (u >= tasks) return;
    int index, row, b;
    place(u, index, row, b);
    const Panel panel = panel_of(index);
#pragma unroll
    for (int s = 0; s < TASK_UNITS; ++s) {
      const int unit = (row + 4 * s) * nb + b;
      if (row + 4 * s >= height || b >= nb) continue;
      const unsigned char* from = panel.qs + (long long)unit * 16;
      task.word[s] = STAGED ? *(const uint4*)from : load_once(from);
      task.d[s] = STAGED ? panel.d[unit] : __ldg(panel.d + unit);
    }
  }

  __device__ void use(const Task& task, int u, bool folds) const {
    int index, row, b;
    place(u, index, row, b);
    if (b >= nb) return;
    const Panel panel = panel_of(index);
    int q[16];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int4 four = *(const int4*)(panel.input + b * INPUT_PITCH + 4 * i);
      q[4 * i] = four.x, q[4 * i + 1] = four.y, q[4 * i + 2] = four.z, q[4 * i + 3] = four.w;
    }
    const float s_a = panel.scales[b];
#pragma unroll
    for (int s = 0; s < TASK_UNITS; ++s) {
      if (row + 4 * s >= height) break;
      // step 2: (dot * s_w) * s_a
      float term = scaled_dot(q4_block_int(task.word[s], q), half_to_f32(task.d[s]), s_a, variants);
      if (folds) term = __fmul_rn(term, panel.p[0]);
      panel.terms[(row + 4 * s) * stride + b] = term;
    }
  }

  // The first loads; what is in shared memory is not waited for.
  __device__ void start() {
    if constexpr (!STAGED) {
#pragma unroll
      for (int i = 0; i < HELD_TASKS; ++i) load(held[i], threadIdx.x / 32 + i * warps);
    }
  }

  __device__ void run(bool folds) {
    if constexpr (STAGED) {
      for (int u = threadIdx.x / 32; u < tasks; u += warps) {
        Task task;
        load(task, u);
        use(task, u, folds);
      }
    } else {
      for (int u = threadIdx.x / 32; u < tasks; u += HELD_TASKS * warps)
#pragma unroll
        for (int i = 0; i < HELD_TASKS; ++i) {
          const int now = u + i * warps;
          if (now >= tasks) break;
          use(held[i], now, folds);
          load(held[i], now + HELD_TASKS * warps);
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
