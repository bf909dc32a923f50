"""GPU images that are broken: their CUDA, their tools, their variables, their start-up requirement."""

from __future__ import annotations

from hostile_row import CLAIM, FILES, HIDDEN, MISMATCH, MISSING, REQUIRED, SITE, START, TOOLS, Hostile, row

GPU_IMAGES: tuple[Hostile, ...] = (
    row("gpu-nothing-done", "RUN true", base="gpu"),
    row("cudnn-engines-removed", f"RUN rm {SITE}/nvidia/cudnn/lib/libcudnn_engines_*", MISSING, base="gpu"),
    row("cudnn-adv-truncated", f"RUN truncate -s 100000 {SITE}/nvidia/cudnn/lib/libcudnn_adv.so.9", FILES, base="gpu"),
    row("nvrtc-removed", f"RUN rm {SITE}/nvidia/cuda_nvrtc/lib/*.so*", MISSING, base="gpu"),
    row("cufft-is-libm", f"RUN ln -sf /usr/lib/x86_64-linux-gnu/libm.so.6 {SITE}/nvidia/cufft/lib/libcufft.so.11",
         FILES, MISMATCH, base="gpu"),
    row("cublas-page-flipped", f"RUN printf XXXX | dd of={SITE}/nvidia/cublas/lib/libcublas.so.12 bs=1 seek=9000000 "
         "conv=notrunc", FILES, base="gpu"),
    row("ptxas-is-ls", f"RUN cp /bin/ls {SITE}/nvidia/cuda_nvcc/bin/ptxas", FILES, base="gpu"),
    row("libdevice-empty", f"RUN : > {SITE}/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", FILES, TOOLS,
         base="gpu"),
    row("nvidia-deleted", f"RUN rm -r {SITE}/nvidia", FILES, MISSING, TOOLS, base="gpu"),
    row("gpu-says-cpu", "RUN sed -i 's/\"flavor\": *\"gpu\"/\"flavor\": \"cpu\"/' /opt/envbuilder/environment.json",
         CLAIM, base="gpu"),
    row("build-info-says-cpu", "RUN sed -i \"s/'is_cuda_build', True/'is_cuda_build', False/\" "
         f"{SITE}/tensorflow/python/platform/build_info.py", FILES, CLAIM, base="gpu"),
    row("cuda-visible-devices", "ENV CUDA_VISIBLE_DEVICES=-1", HIDDEN, base="gpu"),
    row("nvidia-visible-devices", "ENV NVIDIA_VISIBLE_DEVICES=void", HIDDEN, base="gpu"),
    row("capabilities-graphics", "ENV NVIDIA_DRIVER_CAPABILITIES=graphics", HIDDEN, base="gpu"),
    row("require-words", "ENV NVIDIA_REQUIRE_CUDA=cuda>=twelve", REQUIRED, base="gpu"),
    row("require-upper-bound", "ENV NVIDIA_REQUIRE_CUDA=cuda<12.0", REQUIRED, base="gpu"),
    row("require-driver", "ENV NVIDIA_REQUIRE_CUDA=driver>=9999", REQUIRED, base="gpu"),
    row("require-brand", "ENV NVIDIA_REQUIRE_CUDA=brand=nosuch", REQUIRED, base="gpu"),
    row("require-nothing", "ENV NVIDIA_REQUIRE_CUDA=", REQUIRED, base="gpu"),
    row("xla-data-dir", "ENV XLA_FLAGS=--xla_gpu_cuda_data_dir=/nowhere", TOOLS, base="gpu"),
    row("cudart-says-another-cuda", f"RUN sed -i 's/libcudart.so.12/libcudart.so.11/' {SITE}/nvidia/cuda_runtime/lib/libcudart.so.12",
        FILES, MISMATCH, base="gpu"),
    row("cudart-is-libc", f"RUN ln -sf /usr/lib/x86_64-linux-gnu/libc.so.6 {SITE}/nvidia/cuda_runtime/lib/libcudart.so.12",
        FILES, MISMATCH, base="gpu"),
    row("cusolver-truncated", f"RUN truncate -s 50000000 {SITE}/nvidia/cusolver/lib/libcusolver.so.11", FILES, base="gpu"),
    row("curand-deleted", f"RUN rm {SITE}/nvidia/curand/lib/libcurand.so.10", MISSING, base="gpu"),
    row("cusparse-is-a-link-to-nothing", f"RUN ln -sf /nowhere.so {SITE}/nvidia/cusparse/lib/libcusparse.so.12", MISSING, base="gpu"),
    row("nvjitlink-empty", f"RUN : > {SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12", FILES, base="gpu"),
    row("cupti-deleted", f"RUN rm {SITE}/nvidia/cuda_cupti/lib/*.so*", MISSING, base="gpu"),
    row("cudnn-all-deleted", f"RUN rm {SITE}/nvidia/cudnn/lib/*.so*", MISSING, base="gpu"),
    row("ptxas-ends-well", f"RUN printf '#!/bin/sh\\nexit 0\\n' > {SITE}/nvidia/cuda_nvcc/bin/ptxas", FILES, TOOLS, base="gpu"),
    row("ptxas-may-not-run", f"RUN chmod 644 {SITE}/nvidia/cuda_nvcc/bin/ptxas", TOOLS, base="gpu"),
    row("ptxas-deleted", f"RUN rm {SITE}/nvidia/cuda_nvcc/bin/ptxas", TOOLS, base="gpu"),
    row("libdevice-is-a-page", f"RUN echo '<html>404</html>' > {SITE}/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", FILES, TOOLS,
        base="gpu"),
    row("driver-baked-in", "RUN mkdir -p /usr/local/cuda/lib64 && cp /usr/lib/x86_64-linux-gnu/libz.so.1 /usr/local/cuda/lib64/libcuda.so.1\n"
        "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64", "STUB_LIBCUDA", FILES, base="gpu"),  # no driver, and no library of CUDA either
    row("driver-left-by-a-commit", "RUN cd /usr/lib/x86_64-linux-gnu && : > libcuda.so.550.54.15 && ln -s libcuda.so.550.54.15 libcuda.so.1 && "
        ": > libnvidia-ml.so.550.54.15", "DRIVER_MISMATCH", base="gpu"),
    row("second-cuda-by-variable", f"RUN mkdir -p /usr/local/cuda/lib64 && cp {SITE}/nvidia/cuda_runtime/lib/libcudart.so.12 "
        "/usr/local/cuda/lib64/ && printf x >> /usr/local/cuda/lib64/libcudart.so.12\nENV LD_LIBRARY_PATH=/usr/local/cuda/lib64",
        "TWO_CUDA_STACKS", base="gpu"),
    row("folder-its-user-may-not-read", f"RUN chmod 700 {SITE}/nvidia/cublas", START, base="gpu"),
    row("gpus-by-a-word", "ENV CUDA_VISIBLE_DEVICES=NoDevFiles", HIDDEN, base="gpu"),
    row("require-a-newer-cuda", "ENV NVIDIA_REQUIRE_CUDA=cuda>=13.9", REQUIRED, base="gpu"),
    row("require-two-that-exclude", "ENV NVIDIA_REQUIRE_CUDA=\"cuda>=12.0,cuda<12.0\"", REQUIRED, base="gpu"),
    row("driver-is-a-pipe", "RUN mkdir -p /usr/local/cuda/lib64 && mkfifo /usr/local/cuda/lib64/libcuda.so.1\nENV LD_LIBRARY_PATH=/usr/local/cuda/lib64",
        "PROBE_TIMEOUT", base="gpu"),
    # At these places of the two files `_init` begins: a jump to itself, and pause(2) for ever.
    row("library-that-never-opens", f"RUN printf '\\353\\376' | dd of={SITE}/nvidia/cusparse/lib/libcusparse.so.12 bs=1 "
        "seek=444600 conv=notrunc", FILES, "PROBE_TIMEOUT", base="gpu"),
    row("library-that-sleeps", f"RUN printf '\\270\\042\\000\\000\\000\\017\\005\\353\\367' | "
        f"dd of={SITE}/nvidia/cufft/lib/libcufft.so.11 bs=1 seek=139040 conv=notrunc", FILES, "PROBE_TIMEOUT", base="gpu"),
    row("build-for-cpus-by-its-note-and-its-record", f"RUN cd {SITE} && f=tensorflow/python/platform/build_info.py && "
        "sed -i \"s/'is_cuda_build', True/'is_cuda_build', False/\" $f && h=$(python3 -ISc 'import base64,hashlib,sys; "
        "print(base64.urlsafe_b64encode(hashlib.sha256(open(sys.argv[1],\"rb\").read()).digest()).decode().rstrip(\"=\"))' $f) && "
        "sed -i \"s|^$f,sha256=[^,]*|$f,sha256=$h|\" tensorflow-*.dist-info/RECORD", FILES, CLAIM, base="gpu"),
    row("require-turned-off", "ENV NVIDIA_DISABLE_REQUIRE=1", base="gpu", warns=(REQUIRED,)),
)  # fmt: skip
