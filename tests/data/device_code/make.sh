set -eu
TWICE=${TWICE:-../fatbin/twice.cu}
# PTX for 9.0a alone, packed in the three ways that a fat binary may be.
for mode in none speed balance; do
  nvcc -fatbin -compress-mode $mode -gencode arch=compute_90a,code=compute_90a "$TWICE" -o ptx_$mode.fatbin
done
# A generated kernel: a fat binary that is a constant of the program.
nvcc -fatbin -compress-mode speed -gencode arch=compute_75,code=sm_75 -gencode arch=compute_90a,code=compute_90a \
  "$TWICE" -o generated.fatbin
printf '.section .note.GNU-stack,"",@progbits\n.section .rodata\n.globl blob\nblob:\n.incbin "generated.fatbin"\n.byte 0\n.balign 16\n.incbin "generated.fatbin"\n' >blob.s
gcc -c blob.s -o blob.o
# Hand-written ones: one compiled whole, two compiled to be linked and the program linked of them.
CODE='-gencode arch=compute_75,code=sm_75 -gencode arch=compute_90,code=[sm_90,compute_90]'
nvcc -c -compress-mode speed -Xcompiler -fPIC $CODE "$TWICE" -o twice.o
printf '__device__ float f(float x) { return x + 1.0f; }\n' >part.cu
printf 'extern __device__ float f(float);\n__global__ void g(float *x) { *x = f(*x); }\n' >whole.cu
for one in part whole; do nvcc -dc -compress-mode speed -Xcompiler -fPIC $CODE $one.cu -o $one.o; done
nvcc -dlink -Xcompiler -fPIC -gencode arch=compute_75,code=sm_75 -gencode arch=compute_90,code=sm_90 part.o whole.o -o linked.o
gcc -shared -nostdlib -Wl,-z,max-page-size=4096 -Wl,-z,noseparate-code -Wl,--unresolved-symbols=ignore-all \
  blob.o twice.o part.o whole.o linked.o -o libkernels.so
strip -s libkernels.so
