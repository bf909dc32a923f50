/* Stand-ins for CUDA's run time, cuBLAS and cuDNN on a simulated driver: they answer what TensorFlow asks before it
   compares cuDNN's version, and hand that question to the real cuDNN of the image. Nothing is computed. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static char handle[64];

/* The run time: one device, no errors, kernels that are never run. */
API int cudaGetDevice(int *device) { return *device = 0; }
API int cudaSetDevice(int device) { return device; }
API int cudaFree(void *memory) { return memory ? 1 : 0; }
API int cudaGetLastError(void) { return 0; }
API int cudaPeekAtLastError(void) { return 0; }
API int cudaDeviceSynchronize(void) { return 0; }
API int cudaStreamSynchronize(void *stream) { return (void)stream, 0; }
API int cudaLaunchKernel(void) { return 0; }
API int cudaFuncSetAttribute(void) { return 0; }
API const char *cudaGetErrorString(int error) { return error ? "unknown error" : "no error"; }
API const char *cudaGetErrorName(int error) { return error ? "cudaErrorUnknown" : "cudaSuccess"; }
API int cudaGetDeviceCount(int *count) { return *count = 1, 0; }
API int cudaDeviceGetAttribute(int *value, int what, int device) { return *value = 64, (void)what, device; }
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks) { return *blocks = 1, 0; }
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks) { return *blocks = 1, 0; }

static int runtime(void) {
  const char *text = getenv("TF_ENVBUILDER_CUDA_RUNTIME");
  return text ? atoi(text) : 0;
}

API int cudaRuntimeGetVersion(int *version) { return *version = runtime(), 0; }
API int cudaDriverGetVersion(int *version) {
  int (*ask)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cuDriverGetVersion");
  if (!ask) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    ask = driver ? (int (*)(int *))dlsym(driver, "cuDriverGetVersion") : NULL;
  }
  return ask ? ask(version) : 35;
}

/* cudaDeviceProp: what launch sizes are divided by must not be zero; the exact figures are nobody's. */
static int properties(char *properties) {
  int *words = (int *)properties;
  memset(properties, 0, 392);
  for (int i = 98; i < 170; i++) words[i] = 64;
  strcpy(properties, "simulated");
  *(size_t *)(properties + 288) = (size_t)16 << 30;
  *(size_t *)(properties + 296) = 49152;
  words[76] = 65536, words[77] = 32, words[80] = 1024;
  for (int i = 81; i < 87; i++) words[i] = 1024;
  words[90] = 7, words[91] = 5, words[97] = 40;
  return 0;
}

API int cudaGetDeviceProperties(char *to, int device) { return device ? 1 : properties(to); }
API int cudaGetDeviceProperties_v2(char *to, int device) { return device ? 1 : properties(to); }

static void *registered;
API void **__cudaRegisterFatBinary(void *binary) { return (void)binary, &registered; }
API void __cudaRegisterFatBinaryEnd(void **binary) { (void)binary; }
API void __cudaUnregisterFatBinary(void **binary) { (void)binary; }
API void __cudaRegisterFunction(void **binary) { (void)binary; }
API void __cudaRegisterVar(void **binary) { (void)binary; }
API unsigned __cudaPushCallConfiguration(void) { return 0; }
API int __cudaPopCallConfiguration(void) { return 0; }

/* cuBLAS: a handle. */
API int cublasCreate_v2(void **to) { return *to = handle, 0; }
API int cublasDestroy_v2(void *it) { return (void)it, 0; }
API int cublasSetStream_v2(void *it, void *stream) { return (void)it, (void)stream, 0; }
API int cublasSetMathMode(void *it, int mode) { return (void)it, (void)mode, 0; }
API int cublasGetMathMode(void *it, int *mode) { return (void)it, *mode = 0; }
API int cublasSetPointerMode_v2(void *it, int mode) { return (void)it, (void)mode, 0; }
API int cublasSetWorkspace_v2(void *it, void *space, size_t size) { return (void)it, (void)space, (void)size, 0; }
API int cublasLtCreate(void **to) { return *to = handle, 0; }
API int cublasLtDestroy(void *it) { return (void)it, 0; }

/* cuDNN: a handle, and the real library's word for its version. */
static void *real(const char *name) {
  static void *library;
  const char *paths = getenv("TF_ENVBUILDER_REAL_CUDNN");
  char path[512];
  while (!library && paths && *paths) {
    size_t length = strcspn(paths, ":");
    if (length && length < sizeof path) {
      memcpy(path, paths, length);
      path[length] = 0;
      library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    paths += length + (paths[length] == ':');
  }
  return library ? dlsym(library, name) : NULL;
}

API size_t cudnnGetVersion(void) {
  size_t (*ask)(void) = (size_t(*)(void))real("cudnnGetVersion");
  return ask ? ask() : 0;
}
API int cudnnGetProperty(int what, int *value) {
  int (*ask)(int, int *) = (int (*)(int, int *))real("cudnnGetProperty");
  return ask ? ask(what, value) : 1;
}
API int cudnnCreate(void **to) { return *to = handle, 0; }
API int cudnnDestroy(void *it) { return (void)it, 0; }
API int cudnnSetStream(void *it, void *stream) { return (void)it, (void)stream, 0; }
API const char *cudnnGetErrorString(int error) { return error ? "CUDNN_STATUS_NOT_INITIALIZED" : "CUDNN_STATUS_SUCCESS"; }
