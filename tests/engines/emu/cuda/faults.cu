// One planted fault a kernel, and the controls that have none.

// read of the neighbour before a barrier
extern "C" __global__ void no_barrier(const float* x, float* y) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  part[t] = x[t];
  y[t] = part[t] + part[(t + 1) & 255];
}
// the same, but thread t reads what t - 1 wrote: ascending order hides it
extern "C" __global__ void no_barrier_hidden(const float* x, float* y) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  part[t] = x[t];
  y[t] = t ? part[t] + part[t - 1] : part[t];
}
// write after read: the second barrier of the loop is missing
extern "C" __global__ void write_after_read(const float* x, float* y) {
  __shared__ float part[1024];
  const int t = threadIdx.x;
  float s = x[t];
  for (int i = 0; i < 3; ++i) {
    part[t] = s;
    __syncthreads();
    s = s + part[(t + 17) % blockDim.x];
  }
  y[t] = s;
}
// a warp's barrier where the block's is needed
extern "C" __global__ void warp_barrier_only(const float* x, float* y) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  part[t] = x[t];
  __syncwarp();
  y[t] = part[t] + part[t ^ 32];
}
// a shuffle orders no memory accesses
extern "C" __global__ void shuffle_as_barrier(const float* x, float* y) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  part[t] = x[t];
  const float other = __shfl_xor_sync(0xffffffffu, x[t], 1);
  y[t] = other + part[t ^ 1];
}
extern "C" __global__ void float_atomic(const float* x, float* y) {
  atomicAdd(y, x[blockIdx.x * blockDim.x + threadIdx.x]);
}
extern "C" __global__ void blocks_share_a_word(const float*, float* y) {
  if (threadIdx.x == 0) y[0] = (float)blockIdx.x;
}
// no atomic: blocks that run at the same time lose counts, blocks one after another never do
extern "C" __global__ void blocks_count(const float*, float* y) {
  if (threadIdx.x == 0) y[0] = y[0] + 1.0f;
}
extern "C" __global__ void unwritten_shared(const float*, float* y) {
  __shared__ float s[256];
  if (threadIdx.x < 32) s[threadIdx.x] = 1.0f;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void unwritten_dynamic(const float*, float* y) {
  extern __shared__ float s[];
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void half_barrier(const float*, float* y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 1.0f;
}
extern "C" __global__ void early_return(const float*, float* y) {
  if (threadIdx.x < 32) return;
  __syncthreads();
  y[threadIdx.x] = 1.0f;
}
extern "C" __global__ void two_barriers(const float*, float* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1.0f;
}
extern "C" __global__ void deadlock(const float*, float* y) {
  if (threadIdx.x & 1) {
    y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  } else {
    __syncthreads();
  }
}
extern "C" __global__ void mask_without_me(const float*, float* y) {
  y[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);
}
extern "C" __global__ void masks_differ(const float*, float* y) {
  y[threadIdx.x] = __shfl_sync(threadIdx.x & 1 ? 0x7fffffffu : 0xffffffffu, 1.0f, 0);
}
extern "C" __global__ void lanes_returned(const float*, float* y) {
  if (threadIdx.x < 4) return;
  y[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
}
extern "C" __global__ void two_shuffles(const float*, float* y) {
  float v = 1.0f;
  if (threadIdx.x & 1) {
    v = __shfl_sync(0xffffffffu, v, 0);
  } else {
    v = __shfl_sync(0xffffffffu, v, 0);
  }
  y[threadIdx.x] = v;
}
extern "C" __global__ void trap(const float*, float*) {
  if (threadIdx.x == 5) __trap();
  __syncthreads();
}
extern "C" __global__ void global_past_end(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x + 1];
}
extern "C" __global__ void shared_past_end(const float* x, float* y) {
  __shared__ float s[256];
  s[threadIdx.x + 1] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void dynamic_past_end(const float* x, float* y) {
  extern __shared__ float s[];
  s[threadIdx.x + 1] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void shift_by_32(const float*, float* y) {
  y[threadIdx.x] = (float)(1 << (threadIdx.x & 63));
}
extern "C" __global__ void bare_cast(const float*, float* y) {
  y[threadIdx.x] = (float)(int)((float)threadIdx.x * 1e9f);
}
// deep recursion: must not run into another thread's stack
__device__ __attribute__((noinline)) int deep(int n, volatile char* above) {
  volatile char room[4096];
  room[0] = above[0];
  return n ? deep(n - 1, room) + room[0] : 0;
}
extern "C" __global__ void stack_overflow(const float*, float* y) {
  char start = 0;
  y[threadIdx.x] = (float)deep(1000, &start);
}

// ---- controls
extern "C" __global__ void ok_atomic(const float*, float* y) { atomicAdd((int*)y, 1); }
__device__ __attribute__((noinline)) void fill(float* to, float v) {
  for (int i = 0; i < 8; ++i) to[i] = v + (float)i;
}
// locals whose address is taken, on stacks that threads use in turn
extern "C" __global__ void ok_locals(const float* x, float* y) {
  float l[8];
  fill(l, x[threadIdx.x]);
  y[threadIdx.x] = ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
}
// shared memory and barriers of each block are its own
extern "C" __global__ void ok_blocks(const float* x, float* y) {
  __shared__ float part[256];
  const int t = threadIdx.x, n = blockDim.x;
  for (int i = 0; i < 3; ++i) {
    part[t] = x[t] + (float)i;
    __syncthreads();
    if (t < 4) y[blockIdx.x * 4 + t] = part[n - 1 - t] + part[t];
    __syncthreads();
  }
}
extern "C" __global__ void ok_barriers(const float* x, float* y) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  float s = x[t];
  for (int i = 0; i < 3; ++i) {
    part[t] = s;
    __syncthreads();
    s = s + part[(t + 17) & 255];
    __syncthreads();
  }
  y[t] = s;
}
extern "C" __global__ void ok_warp_barrier(const float* x, float* y) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  part[t] = x[t];
  __syncwarp();
  y[t] = part[t] + part[t ^ 1];
}
// barriers by number: two warps make what the others read, by halves, and wait for nobody
extern "C" __global__ void ok_named(const float* x, float* y) {
  __shared__ float part[3][64];
  const int t = threadIdx.x, warp = t / 32;
  float s = 0.0f;
  for (int i = 0; i < 3; ++i) {
    if (warp < 2) {
      part[i][t] = x[t] + (float)i;
      emu_barrier_arrive(1 + i, 256);
    } else {
      emu_barrier_sync(1 + i, 256);
      s = s + part[i][t % 64];
    }
  }
  y[t] = s;
}
// they say that it is made before it is
extern "C" __global__ void named_too_early(const float* x, float* y) {
  __shared__ float part[64];
  const int t = threadIdx.x;
  if (t < 64) {
    emu_barrier_arrive(1, 256);
    part[t] = x[t];
    y[t] = 0.0f;
  } else {
    emu_barrier_sync(1, 256);
    y[t] = part[t % 64];
  }
}
extern "C" __global__ void named_deadlock(const float*, float*) {
  if (threadIdx.x < 32) emu_barrier_sync(3, 64);
}
extern "C" __global__ void named_counts(const float*, float*) {
  emu_barrier_sync(1, threadIdx.x < 32 ? 64 : 96);
}
extern "C" __global__ void named_number(const float*, float*) {
  emu_barrier_sync(16, 64);
}
extern "C" __global__ void named_threads(const float*, float*) {
  emu_barrier_arrive(1, 33);
}
