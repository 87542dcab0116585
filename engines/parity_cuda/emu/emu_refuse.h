// What device and host compute differently: a compile error that says so, and labelled stand-ins.
#pragma once
#include "emu_base.h"

#define EMU_REFUSE(name)                                                              \
  template <class... A>                                                               \
  __attribute__((unavailable(#name                                                    \
                             " is not bit-portable: device and host give different bits"))) float \
  name(A...);
// clang-format off
EMU_REFUSE(expf) EMU_REFUSE(exp2f) EMU_REFUSE(exp10f) EMU_REFUSE(expm1f) EMU_REFUSE(logf)
EMU_REFUSE(log2f) EMU_REFUSE(log10f) EMU_REFUSE(log1pf) EMU_REFUSE(powf) EMU_REFUSE(sinf)
EMU_REFUSE(cosf) EMU_REFUSE(tanf) EMU_REFUSE(sincosf) EMU_REFUSE(sinpif) EMU_REFUSE(cospif)
EMU_REFUSE(asinf) EMU_REFUSE(acosf) EMU_REFUSE(atanf) EMU_REFUSE(atan2f) EMU_REFUSE(sinhf)
EMU_REFUSE(coshf) EMU_REFUSE(tanhf) EMU_REFUSE(erff) EMU_REFUSE(erfcf) EMU_REFUSE(rsqrtf)
EMU_REFUSE(cbrtf) EMU_REFUSE(rcbrtf) EMU_REFUSE(hypotf) EMU_REFUSE(fdividef)
EMU_REFUSE(exp) EMU_REFUSE(exp2) EMU_REFUSE(exp10) EMU_REFUSE(expm1) EMU_REFUSE(log)
EMU_REFUSE(log2) EMU_REFUSE(log10) EMU_REFUSE(log1p) EMU_REFUSE(pow) EMU_REFUSE(sin)
EMU_REFUSE(cos) EMU_REFUSE(tan) EMU_REFUSE(sincos) EMU_REFUSE(tanh) EMU_REFUSE(erf)
EMU_REFUSE(rsqrt) EMU_REFUSE(cbrt) EMU_REFUSE(hypot)
EMU_REFUSE(__expf) EMU_REFUSE(__exp10f) EMU_REFUSE(__logf) EMU_REFUSE(__log2f)
EMU_REFUSE(__log10f) EMU_REFUSE(__powf) EMU_REFUSE(__sinf) EMU_REFUSE(__cosf) EMU_REFUSE(__tanf)
EMU_REFUSE(__sincosf) EMU_REFUSE(__tanhf) EMU_REFUSE(__fdividef) EMU_REFUSE(__frsqrt_rn)
EMU_REFUSE(__activemask)
// clang-format on

// Stand-ins for variants that use the device's own functions (contract 5). Their bits are not the
// device's: a kernel asks for them by these names, under #ifdef __CUDA_EMU__, and says so.
EMU_INLINE float emu_standin_expf(float x) { return __builtin_expf(x); }
EMU_INLINE float emu_standin_logf(float x) { return __builtin_logf(x); }
EMU_INLINE float emu_standin_sinf(float x) { return __builtin_sinf(x); }
EMU_INLINE float emu_standin_cosf(float x) { return __builtin_cosf(x); }
EMU_INLINE double emu_standin_exp(double x) { return __builtin_exp(x); }
EMU_INLINE float emu_standin_rsqrtf(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
