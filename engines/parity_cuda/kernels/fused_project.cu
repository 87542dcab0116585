// fused_project: one float row, normed or not, times several matrices, and what is made of the products
// element by element; see project.cuh. Contract 1.1, 1.3, 1.5, 1.9, 2 (the residual), 5.
#include "project.cuh"

// Names an argument list must have.
#define PROJECT_GIVEN                                                                                \
  {                                                                                                  \
      {{q4_out0, d0, qs0, q4_rows0}, {q4_out1, d1, qs1, q4_rows1}, {q4_out2, d2, qs2, q4_rows2}},    \
      {{out0, w0, rows0}, {out1, w1, rows1}, {out2, w2, rows2}, {out3, w3, rows3}},                  \
      x,                                                                                             \
      {norm_w, norm_out, eps, (uses & WITH_NORM) != 0},                                              \
      {uses & WITH_ACT ? made : nullptr, uses & WITH_TOTAL ? made : nullptr, base},                  \
      cols, f32_blocks, f32_tile, tile, kept, across, ring                                           \
  }

extern "C" __global__ void __launch_bounds__(384, 1) fused_project(const float* x,
    const float* norm_w, float* norm_out, float eps, float* made, const float* base, float* q4_out0,
    const unsigned short* d0, const unsigned char* qs0, int q4_rows0, float* q4_out1,
    const unsigned short* d1, const unsigned char* qs1, int q4_rows1, float* q4_out2,
    const unsigned short* d2, const unsigned char* qs2, int q4_rows2, float* out0, const float* w0,
    int rows0, float* out1, const float* w1, int rows1, float* out2, const float* w2, int rows2,
    float* out3, const float* w3, int rows3, int uses, int variants, int cols, int f32_blocks,
    int f32_tile, int tile, int kept, int across, int ring) {
  variants = KNOWN(variants);
  extern __shared__ float shared[];
  const Project p = PROJECT_GIVEN;
  // step 1: the norm, the products, and what is made of them
  project_block<false>(p, variants, shared);
}

// Q4_0 rows so few that all of a block's weights are asked for before the launch ahead has ended; half of
// the registers are left to the launches beside it.
extern "C" __global__ void __launch_bounds__(256, 2) fused_project_few(const float* x,
    const float* norm_w, float* norm_out, float eps, float* made, const float* base, float* q4_out0,
    const unsigned short* d0, const unsigned char* qs0, int q4_rows0, float* q4_out1,
    const unsigned short* d1, const unsigned char* qs1, int q4_rows1, float* q4_out2,
    const unsigned short* d2, const unsigned char* qs2, int q4_rows2, float* out0, const float* w0,
    int rows0, float* out1, const float* w1, int rows1, float* out2, const float* w2, int rows2,
    float* out3, const float* w3, int rows3, int uses, int variants, int cols, int f32_blocks,
    int f32_tile, int tile, int kept, int across, int ring) {
  variants = KNOWN(variants);
  extern __shared__ float shared[];
  const Project p = PROJECT_GIVEN;
  project_block<true>(p, variants, shared);
}
