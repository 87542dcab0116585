// row_plan: which rows of which matrices a warp of q4_row.cuh multiplies, and which groups of 32 blocks.
// Any plan makes every sum once, and none changes one.
#pragma once
#include "barriers.cuh"
#include "shares.cuh"

#define ROW_UNIT 2  // rows that a warp's share is a multiple of

struct RowMatrix {
  float* out;
  const unsigned short* d;
  const unsigned char* qs;
  int rows;
};

// What is made of the outputs: act, swiglu of two matrices row by row; total, one matrix and base.
struct RowEnd {
  float *act, *total;
  const float* base;
};

// The work of a side: rows from .. to, counted over all matrices, in tiles of `tile` rows whose sums are
// made at once. kept: rows that there is room for: one tile, or where several warps have more than one,
// two. ring: steps of each warp that there is room for, ROW_RING or more. `pairs`: the first half of a
// tile is of matrix 0, the second the same rows of matrix 1. across: its warps.
template <int N>
struct RowPlan {
  RowMatrix matrix[N];
  RowEnd end;
  int nb, from, to, tile, kept, across, ring;
  bool pairs;

  __device__ __forceinline__ int groups() const { return (nb + 31) / 32; }
  __device__ __forceinline__ int height(int first) const { return min(tile, to - first); }

  // The matrix of a row of the tile that begins at `first`, and the row's number in it. end_of: where
  // the rows behind it stop being of this tile or matrix.
  __device__ __forceinline__ RowMatrix find(int first, int& row, int& end_of) const {
    RowMatrix found = matrix[0];
    end_of = first + height(first);
    if (pairs) {
      const int half = height(first) / 2, at = row - first;
      if (at >= half) found = matrix[N > 1 ? 1 : 0];
      if (at < half) end_of = first + half;
      row = first / 2 + (at < half ? at : at - half);
      return found;
    }
    int base = 0, next = matrix[0].rows;
#pragma unroll
    for (int i = 1; i < N; ++i)
      if (row >= next && matrix[i].rows > 0) {
        base = next;
        next += matrix[i].rows;
        found = matrix[i];
      }
    end_of = min(end_of, next);
    row -= base;
    return found;
  }
};

// The way of a warp through the rows of its side: of each tile a share, group by group of 32 blocks, in
// pieces, which are rows of one matrix and one group.
template <int N>
struct RowWalk {
  int first, group, at, left;  // left: rows of the share, each counted once a group

  // The share of warp `own` of the tile at `from`.
  __device__ __forceinline__ void begin(const RowPlan<N>& p, int own, int from) {
    first = from, group = 0, at = 0, left = 0;
    if (first >= p.to) return;
    const int height = p.height(first);
    left = height * p.groups();
    if (p.across == 1) return;
    const int units = (left + ROW_UNIT - 1) / ROW_UNIT;
    at = min(left, ROW_UNIT * even_share(units, own, p.across));
    left = min(left, ROW_UNIT * even_share(units, own + 1, p.across)) - at;
    for (; at >= height; at -= height) ++group;
  }

  // The piece that comes next, if any rows are left: its matrix, its first row there, its rows.
  __device__ __forceinline__ RowMatrix next(const RowPlan<N>& p, int& row, int& count) {
    int end;
    row = first + at;
    const RowMatrix found = p.find(first, row, end);
    count = min(end - first - at, left);
    at += count, left -= count;
    if (at >= p.height(first)) at = 0, ++group;
    return found;
  }
};

// What of `units` things is this warp's side's, where `blocks` blocks share them: from .. to.
__device__ __forceinline__ void row_side_share(int units, int block, int blocks, int across,
                                               int& from, int& to) {
  const int side = threadIdx.x / 32 / across, sides = blockDim.x / 32 / across;
  const int first = even_share(units, block, blocks);
  const int own = even_share(units, block + 1, blocks) - first;
  from = first + even_share(own, side, sides);
  to = first + even_share(own, side + 1, sides);
}

// All warps of a side have come; their shared memory is in order.
__device__ __forceinline__ void row_side_sync(int side, int across) {
  if (across == 1) {
    __syncwarp();
  } else {
    barrier_sync(1 + side, 32 * across);
  }
}
