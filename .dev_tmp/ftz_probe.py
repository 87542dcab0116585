import subprocess, numpy as np, cupy
from parity_cuda import nvrtc
from parity_cuda.sources import kernel_sources
from parity_cuda.selftest import INPUTS
print(cupy.__version__, nvrtc.nvrtc_version(), cupy.cuda.runtime.driverGetVersion())
def flags(*w):
    names=[f.split("=")[0] for f in w]
    return tuple([f for f in nvrtc.FLAGS if f.split("=")[0] not in names]+list(w))
for tag, fl in (("base", nvrtc.FLAGS), ("ftz", flags("-ftz=true")), ("fmad", flags("-fmad=true"))):
    cubin,_=nvrtc.compile_cubin(kernel_sources(),"sm_90",fl)
    p=f"/tmp/{tag}.cubin"; open(p,"wb").write(cubin)
    s=subprocess.run(["cuobjdump","-sass","-fun","selftest",p],capture_output=True,text=True).stdout
    print(tag, len(cubin), [l.split("*/")[1].strip() for l in s.splitlines() if "FADD" in l or "FFMA" in l][:3])
    for how in ("path","load"):
        if how=="path":
            fn=cupy.RawModule(path=p).get_function("selftest")
        else:
            m=cupy.cuda.function.Module(); m.load(cubin); fn=m.get_function("selftest")
        out=cupy.full(4,0x12345678,np.uint32); x=cupy.empty(8,np.float32); x.set(INPUTS)
        back=x.get().view(np.uint32)
        fn((1,),(1,),(out,x)); print("  ",how,[f"{int(v):08x}" for v in out.get()], f"{int(back[0]):08x}")
