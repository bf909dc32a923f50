set -eu
echo 'extern "C" __global__ void scale(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2.0f; }' >k.cu
for a in 75 80 89 90 90a 100 120; do nvcc -cubin -arch=sm_$a -o s$a.cubin k.cu; done
bundle() { name=$1; shift; nvcc -fatbin -o "$name.fatbin" "$@" k.cu; }
code() { echo "-gencode arch=compute_$1,code=sm_$1"; }
ptx() { echo "-gencode arch=compute_$1,code=compute_$1"; }
for a in 75 90 90a 100 100f; do bundle p$a $(ptx $a); done
for a in 80 90 90a; do bundle c$a $(code $a); done
bundle c80p80 $(code 80) $(ptx 80)
bundle c75c100 $(code 75) $(code 100)
bundle c100p100 $(code 100) $(ptx 100)
bundle p75c90 $(ptx 75) $(code 90)
bundle p75-zstd --compress-mode=size $(ptx 75)
bundle c80p80-plain -no-compress $(code 80) $(ptx 80)
bundle c90p90-plain -no-compress $(code 90) $(ptx 90)
for a in 75 100; do bundle p$a-plain -no-compress $(ptx $a); done
python3 - *-plain.fatbin <<'P'
import struct, sys
for path in sys.argv[1:]:
    data = bytearray(open(path, "rb").read().replace(b".version 9.0", b".version 9.9"))
    at = 16  # entries follow the header; each holds kind, own size, payload's size, and at 24 the version
    while at < len(data):
        kind, _, header, stored = struct.unpack_from("<HHIQ", data, at)
        if kind == 1:
            struct.pack_into("<HH", data, at + 24, 9, 9)
        at += header + stored
    open(path.replace("-plain", "-newer"), "wb").write(data)
P
