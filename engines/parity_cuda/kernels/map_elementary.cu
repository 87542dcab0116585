// The elementary functions over a whole array, as map_elements.cuh says. Contract 4 and 1.9.
#include "elementary.cuh"
#include "map_elements.cuh"

extern "C" __global__ void map_expf(float* out, const float* x, long long n) {
  map_elements<ucrt_expf>(out, x, n);
}

extern "C" __global__ void map_cosf(float* out, const float* x, long long n) {
  map_elements<ucrt_cosf>(out, x, n);
}

extern "C" __global__ void map_sinf(float* out, const float* x, long long n) {
  map_elements<ucrt_sinf>(out, x, n);
}

extern "C" __global__ void map_logf(float* out, const float* x, long long n) {
  map_elements<ucrt_logf>(out, x, n);
}

extern "C" __global__ void map_sigmoid(float* out, const float* x, long long n) {
  map_elements<sigmoid>(out, x, n);
}

extern "C" __global__ void map_silu(float* out, const float* x, long long n) {
  map_elements<silu>(out, x, n);
}

extern "C" __global__ void map_softplus(float* out, const float* x, long long n) {
  map_elements<softplus>(out, x, n);
}
