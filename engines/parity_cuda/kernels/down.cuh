// down: the shared memory of fused_down, its products, and experts made anew. Contract 1.4, 1.9, 2.
#pragma once
#include "experts.cuh"

#define DOWN_WARPS 8  // for the products; one more is for the probabilities
#define TASK_ROWS 4   // a lane's rows of a task: four lanes have 16 rows, eight lanes 8 blocks
#define HELD_TASKS 3  // tasks that a warp has on their way from memory

// Where a block's things lie. fused/experts.py sizes the memory by the same sums.
struct DownRoom {
  float *terms, *scales, *soft, *sums, *probs;
  int *input, *guess, *ids;
  int tile, nb, ranks, stride;

  __device__ DownRoom(void* memory, int tile_, int nb_, int ranks_, int experts)
      : tile(tile_), nb(nb_), ranks(ranks_), stride(terms_stride(nb_)) {
    const int rows = ranks * tile;
    terms = (float*)memory;
    input = (int*)(terms + rows * stride);
    scales = (float*)(input + ranks * nb * INPUT_PITCH);
    soft = scales + (ranks * nb + 3) / 4 * 4;
    sums = soft + (experts + 7) / 8 * 8;
    probs = sums + rows;
    guess = (int*)(probs + ranks);
    ids = guess + ranks;
  }

  // The rows' sums, blocks ascending, also to `out`: a warp a rank, a lane a row (tile is at most 16).
  // The terms and, under fold_p, the probabilities are there.
  __device__ void add_up(float* out, int first, int height, int hidden, int variants) const {
    const int row = threadIdx.x % 32;
#pragma unroll 1
    for (int r = threadIdx.x / 32; r < ranks; r += DOWN_WARPS) {
      if (row >= height) continue;
      const float sum = row_sum(terms + (r * tile + row) * stride, probs + r, variants);
      sums[r * tile + row] = sum;
      out[(long long)r * hidden + first + row] = sum;
    }
  }

  // acc + term, or acc + term * p. Few blocks: all of them come at once.
  __device__ float row_sum(const float* from, const float* prob, int variants) const {
    const bool folds = variants & FOLD_P;
    const float p = folds ? *prob : 1.0f;
    float acc = 0.0f;
    int b = 0;
#pragma unroll 6
    for (; b + 4 <= nb; b += 4) {
      const float4 v = *(const float4*)(from + b);
      acc = folds ? add_four(acc, make_float4(__fmul_rn(v.x, p), __fmul_rn(v.y, p), __fmul_rn(v.z, p),
                                              __fmul_rn(v.w, p)))
                  : add_four(acc, v);
    }
#pragma unroll 1
    for (; b < nb; ++b) acc = __fadd_rn(acc, folds ? __fmul_rn(from[b], p) : from[b]);
    return acc;
  }
};

// The matrix [experts, hidden, nb] and the rows of a block.
struct DownRows {
  const unsigned char* qs;
  const unsigned short* d;
  int first, height, hidden;
};

// The products of a warp with the experts that were guessed: tasks of 16 rows (tile is no more) and 8
// blocks, HELD_TASKS at once.
struct DownTerms {
  const DownRoom& room;
  const DownRows& of;
  int tasks;
  uint4 word[HELD_TASKS][TASK_ROWS];
  unsigned short d[HELD_TASKS][TASK_ROWS];

  __device__ DownTerms(const DownRoom& room_, const DownRows& of_) : room(room_), of(of_) {
    tasks = room.ranks * ((room.nb + 7) / 8);
  }

  // Tasks from `from` on, every DOWN_WARPS-th. What is not there is the last one once more.
  __device__ void load(int from) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < HELD_TASKS; ++i) {
      const int task = min(from + i * DOWN_WARPS, tasks - 1), chunk = task / room.ranks;
      const int b = min(chunk * 8 + lane % 8, room.nb - 1);
      const long long row = (long long)room.guess[task - chunk * room.ranks] * of.hidden + of.first;
#pragma unroll
      for (int s = 0; s < TASK_ROWS; ++s) {
        const long long unit = (row + min(lane / 8 + 4 * s, of.height - 1)) * room.nb + b;
        word[i][s] = load_once(of.qs + unit * 16);
        d[i][s] = __ldg(of.d + unit);
      }
    }
  }

  __device__ void use(int from, int variants) const {
    const int lane = threadIdx.x % 32;
    const unsigned flip = high_flip(room.nb);
#pragma unroll
    for (int i = 0; i < HELD_TASKS; ++i) {
      const int task = from + i * DOWN_WARPS, chunk = task / room.ranks;
      const int rank = task - chunk * room.ranks, b = chunk * 8 + lane % 8;
      if (task >= tasks) return;
      const int at = rank * room.nb + min(b, room.nb - 1);
      const Int16Block x(room.input + at * INPUT_PITCH);
      const float s_a = room.scales[at];
      float term[TASK_ROWS];  // a condition among them would make one unit wait for the other
#pragma unroll
      for (int s = 0; s < TASK_ROWS; ++s)
        term[s] = block_term(x, word[i][s], d[i][s], s_a, flip, variants);
      if (b >= room.nb) continue;
#pragma unroll
      for (int s = 0; s < TASK_ROWS; ++s) {
        const int row = lane / 8 + 4 * s;
        if (row < of.height) room.terms[(rank * room.tile + row) * room.stride + b] = term[s];
      }
    }
  }
};

// --- experts made anew ------------------------------------------------------------------------------

// A row of a matrix times int16, blocks ascending, `pitch` words from one to the next; p: what fold_p
// multiplies each term by. By one thread, in little code.
__device__ __noinline__ float anew_row(const unsigned char* qs, const unsigned short* d,
                                       const int* input, int pitch, const float* scales, int nb,
                                       float p, int variants) {
  float acc = 0.0f;
#pragma unroll 4
  for (int b = 0; b < nb; ++b) {
    const uint4 word = ((const uint4*)qs)[b];
    const Int16Block x(input + b * pitch);
    float term = block_term(x, word, d[b], scales[b], high_flip(nb), variants);
    if (variants & FOLD_P) term = __fmul_rn(term, p);
    acc = __fadd_rn(acc, term);
  }
  return acc;
}

// What an expert is made of anew; out is of all ranks, in16 the row's int16.
struct Anew {
  ActMatrices m;
  ActOut out;
  float* down;
  const int* in16;
  const float* in16_scale;
  DownRows rows;
};

// Gate, up, act and int16 of each rank whose expert was not the one guessed, by the whole block: a lane
// an element. The first block writes them.
__device__ __forceinline__ void make_acts(const DownRoom& room, const Anew& of, int variants) {
  const int lane = threadIdx.x % 32, nb = of.m.nb;
#pragma unroll 1
  for (int r = 0; r < room.ranks; ++r) {
    if (room.ids[r] == room.guess[r]) continue;
#pragma unroll 1
    for (int t = threadIdx.x / 32; t < room.nb; t += blockDim.x / 32) {
      const int i = t * ACT_TILE + lane, at = r * room.nb + t;
      const long long row = ((long long)room.ids[r] * of.m.inter + i) * nb;
      float value[2];
#pragma unroll 1
      for (int k = 0; k < 2; ++k)
        value[k] = anew_row((k ? of.m.up_qs : of.m.gate_qs) + row * 16,
                            (k ? of.m.up_d : of.m.gate_d) + row, of.in16, 16, of.in16_scale, nb,
                            0.0f, variants & ~FOLD_P);
      const float act = __fmul_rn(any_silu(value[0], variants), value[1]);
      float s;
      ((short*)(room.input + at * INPUT_PITCH))[lane] = quantised16(act, s, variants);
      if (lane == 0) room.scales[at] = s;
      if (blockIdx.x > 0) continue;
      const long long to = (long long)r * of.m.inter + i;
      of.out.gate[to] = value[0], of.out.up[to] = value[1], of.out.act[to] = act;
    }
  }
}

// Those, and down of all ranks. Not inlined: it is rare, and would take registers from what is not. The
// mask is an argument: in memory the compiler would not know it where it is a constant.
__device__ __noinline__ void make_anew(void* memory, int tile, int ranks, int experts,
                                       const Anew& of, int variants) {
  const DownRoom room(memory, tile, of.m.inter / 32, ranks, experts);
  make_acts(room, of, variants);
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < room.ranks * of.rows.height; i += blockDim.x) {
    const int r = i / of.rows.height, row = of.rows.first + i - r * of.rows.height, at = r * room.nb;
    const long long from = ((long long)room.ids[r] * of.rows.hidden + row) * room.nb;
    const float sum = anew_row(of.rows.qs + from * 16, of.rows.d + from,
                               room.input + at * INPUT_PITCH, INPUT_PITCH, room.scales + at, room.nb,
                               room.probs[r], variants);
    room.sums[r * room.tile + row - of.rows.first] = sum;
    of.down[(long long)r * of.rows.hidden + row] = sum;
  }
  __syncthreads();
}
