// attention_scores: every score once, and the largest of each 32 keys. Contract 1.8, step 1.
// The keys of a KV head are read once for its query heads and for up to ROWS rows.
// Scratch: `wide` floats for each (row, head), see scores_of() and peaks_of().
#pragma once
#include "async_copy.cuh"
#include "chain.cuh"
#include "overlap.cuh"
#include "warp.cuh"

#define SCORE_KEYS 32    // keys of a block: a lane each
#define SCORE_ROWS 8     // most rows of a block
#define NO_SCORE __uint_as_float(0xff800000u)

// How many scores a part of scratch has room for: the rest of it holds a maximum for each 32.
__device__ __forceinline__ int score_room(int wide) { return (int)((long long)wide * 32 / 33); }

// ---- a block's memory

// 32 keys, then the queries of `rows` rows, then their scales.
struct ScoreRoom {
  char *keys, *queries;
  float* scales;

  template <class Keys>
  __device__ ScoreRoom(char* shared, const Keys& of, int group, int rows) {
    keys = shared;
    queries = keys + SCORE_KEYS * of.stride();
    scales = (float*)(queries + (group * rows * of.row_bytes() + 15) / 16 * 16);
  }
};

// Bytes to shared memory by 16 where both ends allow it, else one by one; `threads` of them at work.
__device__ __forceinline__ void stage_bytes(char* to, const char* from, int bytes, int thread,
                                            int threads, bool by_16) {
  if (by_16) {
    for (int i = thread * 16; i < bytes; i += threads * 16)
      copy_16((float*)(to + i), (const float*)(from + i));
  } else {
    for (int i = thread; i < bytes; i += threads) to[i] = from[i];
  }
}

// Keys `begin` to `end` of a block's 32, each from the place of `from` on.
template <class Keys>
__device__ __forceinline__ void stage_keys(char* shared, const Keys& keys, int from, int begin,
                                           int end, int g) {
  for (int t = begin + threadIdx.y; t < end; t += blockDim.y)
    stage_bytes(shared + (t - from) * keys.stride(), keys.key(t, g), keys.row_bytes(), threadIdx.x, 32,
                keys.by_words());
}

// The queries of a block's rows, and behind them their scales.
template <class Keys>
__device__ __forceinline__ void stage_queries(char* queries, float* scales, const Keys& keys,
                                              long long row, int rows, int heads, int group) {
  const int thread = threadIdx.y * 32 + threadIdx.x, bytes = group * keys.row_bytes();
  for (int m = 0; m < rows; ++m, row += heads) {
    stage_bytes(queries + m * bytes, keys.query(row), bytes, thread, 32 * blockDim.y, keys.by_words());
    if (thread < group) scales[m * group + thread] = keys.query_scale(row + thread);
  }
}

// ---- scores

// Row m sees keys 0 .. pos + m. Grid (any, n_kv, blocks of SCORE_ROWS rows), block (32, any). Keys
// before pos are of earlier steps, and no launch of a step writes the place: a block's first keys need
// not wait for the launch ahead.
template <class Keys>
__device__ __forceinline__ void attend_scores(float* scratch, const Keys& keys, const int* place,
                                              int count, int wide, int heads, char* shared) {
  const int g = blockIdx.y, group = heads / gridDim.y, lane = threadIdx.x;
  const int first = blockIdx.z * SCORE_ROWS, rows = min(SCORE_ROWS, count - first);
  const int pos = place[0], seen = pos + first + rows;
  int from = blockIdx.x * SCORE_KEYS;
  const ScoreRoom room(shared, keys, group, min(SCORE_ROWS, count));
  stage_keys(room.keys, keys, from, from, min(from + SCORE_KEYS, pos), g);
  float k_scale = from + lane < pos ? keys.key_scale(from + lane, g) : 0.0f;
  wait_for_previous();
  let_next_start();
  if (from >= seen) return;
  stage_queries(room.queries, room.scales, keys, (long long)first * heads + g * group, rows, heads,
                group);
  for (int begin = max(from, pos); from < seen; begin = from) {
    const int here = min(SCORE_KEYS, seen - from), t = from + lane;
    stage_keys(room.keys, keys, from, begin, from + here, g);
    if (lane < here && t >= begin) k_scale = keys.key_scale(t, g);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    for (int job = threadIdx.y; job < group * rows; job += blockDim.y) {
      const int m = job / group, h = g * group + job - m * group;
      float* to = scratch + ((long long)(first + m) * heads + h) * wide;
      float score = NO_SCORE;
      if (lane < here && t <= pos + first + m)
        to[t] = score = keys.score(room.queries + job * keys.row_bytes(),
                                   room.keys + lane * keys.stride(), room.scales[job], k_scale);
      const float peak = warp_max(score);
      if (lane == 0) to[score_room(wide) + from / SCORE_KEYS] = peak;
    }
    __syncthreads();
    from += gridDim.x * SCORE_KEYS;
  }
}
