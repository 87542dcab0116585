// attention_tiles: the memory of attention's second launch, and what goes into it. Contract 1.8.
// A maker warp has 32 keys of every third tile. What it needs for its next tile is on its way into
// memory of its own while it makes this one.
#pragma once
#include "attention_scores.cuh"
#include "barriers.cuh"

#define TILE 128      // keys of a tile, 32 for each warp that makes it
#define DIMS 32       // dimensions of a chain: a lane each
#define TILE_GROUPS 3      // tiles at work
#define MAKERS 12     // warps that make tiles, four a group; at most 16
#define APART 1       // most chains of a block that share no scheduler with makers
#define ROOM_TOTALS 8      // floats for l, one a row: a block has eight chains at most

// Barriers by number, those of tiles one a group.
#define TILE_FULL 1       // a tile is made: the chains wait
#define TILE_FULL_SUM 4   // the same for l
#define TILE_EMPTY 7      // a tile is added: its makers wait
#define ALL_TOTALS 10

// What one row of queries makes of a tile's keys. weight: p; correction: c, 1 where the maximum
// stays; factor: p times V's scale; moved: a bit for each key whose c is not 1.
struct KeyRow {
  float weight[TILE + 4];  // the padding keeps rows in different banks
  float correction[TILE + 4];
  float factor[TILE + 4];
  unsigned moved[4];
};

// Where dimension d of a tile's values stands among 32: 16-byte accesses meet no bank twice.
__device__ __forceinline__ int slot(int d) { return (d & 24) | ((d & 7) ^ (d >> 3)); }

// One block's work: `rows` rows of head h from row `first_row` on, `parts` times 32 dimensions from
// `first` on.
struct Job {
  float* memory;
  const float* scores;  // of the first row; the next row's are `step` on
  long long step;
  int keys;  // of the first row
  int rows, parts, first, hd, g, room, variants;

  __device__ int keys_of(int r) const { return keys + r; }
  __device__ int all_keys() const { return keys + rows - 1; }
  __device__ int tiles() const { return (all_keys() + TILE - 1) / TILE; }
  __device__ int chains() const { return rows * parts; }
  __device__ bool known() const { return variants & TWO_PASS; }
  __device__ bool multiplied() const { return rows == 1; }
  __device__ const float* scores_of(int r) const { return scores + r * step; }
  __device__ const float* peaks_of(int r) const { return scores + r * step + room; }

  // A tile is its values, then a KeyRow for each row; places are counted in floats.
  __device__ int values_at(int part) const { return part * TILE * DIMS; }
  __device__ int row_at(int r) const { return values_at(parts) + r * (int)(sizeof(KeyRow) / 4); }
  __device__ int tile_floats() const { return row_at(rows); }
  __device__ float* tile(int group) const { return memory + group * tile_floats(); }
  // Values, or of one row their products: [four keys][slot of the dimension][key of the four].
  __device__ float* values(int group, int part) const { return tile(group) + values_at(part); }
  __device__ KeyRow& row(int group, int r) const { return *(KeyRow*)(tile(group) + row_at(r)); }
  __device__ float* totals() const { return tile(TILE_GROUPS); }
};

// What a maker warp has asked for: of each row 32 scores and the maxima of chunks, 32 scales of V,
// and of each part V itself, [key mod 4][key / 4][four dimensions], which meets no bank twice.
template <class Keys>
struct Inbox {
  typedef typename Keys::Raw Raw;
  static constexpr int PER_COPY = 16 / sizeof(Raw), COPIES = 8 / PER_COPY;  // of a key
  float* memory;
  int rows;

  __device__ Inbox(const Job& job, int maker) : rows(job.rows) {
    const int floats = 32 + 64 * job.rows + job.parts * 256 * (int)(sizeof(Raw) / 4);
    memory = job.totals() + ROOM_TOTALS + maker * floats;
  }
  __device__ float* scales() const { return memory; }
  __device__ float* scores(int r) const { return memory + 32 + 64 * r; }
  __device__ float* peaks(int r) const { return scores(r) + 32; }
  __device__ Raw* values(int part) const { return (Raw*)scores(rows) + part * 256; }
  __device__ static int place(int key) { return (key % 4 * 8 + key / 4) * 8; }
};

// How many chunks of 32 keys came since the one that this warp had before.
__device__ __forceinline__ int chunks_since(int tile, int warp) {
  return tile < TILE_GROUPS ? tile * 4 + warp : MAKERS;
}

// What is asked for lies there: keys that are not there are taken from the last, their values are 0.
template <class Keys>
__device__ __forceinline__ void ask_scores(const Inbox<Keys>& to, const Job& job, int tile, int warp,
                                           int r) {
  const int lane = threadIdx.x % 32, chunk = tile * 4 + warp, since = chunks_since(tile, warp);
  const unsigned last = job.keys_of(r) - 1, t = chunk * 32 + lane;
  const unsigned peak = lane < since ? chunk - since + lane : chunk;
  copy_4(to.scores(r) + lane, job.scores_of(r) + min(t, last));
  copy_4(to.peaks(r) + lane, job.peaks_of(r) + min(peak, last / 32));
}

// They go with the scores of all rows.
template <class Keys>
__device__ __forceinline__ void ask_scales(const Inbox<Keys>& to, const Job& job, const Keys& keys,
                                           int tile, int warp) {
  const int lane = threadIdx.x % 32, t = tile * TILE + warp * 32 + lane;
  if (Keys::scaled()) copy_4(to.scales() + lane, keys.scale(min(t, job.all_keys() - 1), job.g));
  copy_commit();
}

template <bool WORDS, class Keys>
__device__ __forceinline__ void ask_values(const Inbox<Keys>& to, const Job& job, const Keys& keys,
                                           int tile, int warp) {
  typedef Inbox<Keys> Box;
  const int lane = threadIdx.x % 32, begin = tile * TILE + warp * 32, last = job.all_keys() - 1;
#pragma unroll 1
  for (int part = 0; part < job.parts; ++part) {
    const int d = job.first + part * DIMS;
    if (WORDS) {
      const int at = lane % Box::COPIES * Box::PER_COPY;
      const auto* from = keys.value(job.g, min(d + at * 4, job.hd - Box::PER_COPY * 4));
#pragma unroll
      for (int i = 0; i < Box::COPIES; ++i) {
        const int key = (i * 32 + lane) / Box::COPIES, t = begin + key;
        copy_16_or_zeros(to.values(part) + Box::place(key) + at,
                         from + (size_t)(unsigned)min(t, last) * (unsigned)keys.step(), t <= last);
      }
    } else {
      for (int i = 0; i < 8; ++i) {
        const int key = i * 4 + lane / 8, at = lane % 8, t = begin + key;
        typename Keys::Raw some = {};
        if (t <= last) some = keys.some(t, job.g, d + at * 4);
        to.values(part)[Box::place(key) + at] = some;
      }
    }
  }
  copy_commit();
}

// Four keys and four dimensions at a time, two such a lane. factor: of this warp's keys, or null
// where the chains multiply. 1.0 times a value is the value.
template <class Keys>
__device__ __forceinline__ void store_values(float* to, const typename Keys::Raw* raw,
                                             const float* factor, const Keys& keys, int warp) {
  const int lane = threadIdx.x % 32, d = lane % 8 * 4;
  raw += lane;
  if (factor) factor += lane / 8 * 4;
  float* at[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) at[e] = to + ((warp * 8 + lane / 8) * DIMS + slot(d + e)) * 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float4 v[4], f = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    if (factor) f = *(const float4*)(factor + i * 16);
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = keys.widen(raw[(e * 8 + i * 4) * 8]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float4 x = {__fmul_rn(f.x, ((const float*)&v[0])[e]),
                        __fmul_rn(f.y, ((const float*)&v[1])[e]),
                        __fmul_rn(f.z, ((const float*)&v[2])[e]),
                        __fmul_rn(f.w, ((const float*)&v[3])[e])};
      *(float4*)(at[e] + i * 4 * DIMS * 4) = x;
    }
  }
}
