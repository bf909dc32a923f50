/* Modules and launches: code can be handed over and its functions named, but no kernel is ever computed. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct code {
  char name[256];
};

static int held(void **handle, const char *name) {
  struct code *code = calloc(1, sizeof *code);
  if (!code) return OUT_OF_MEMORY;
  strncpy(code->name, name, sizeof code->name - 1);
  *handle = code;
  return OK;
}

/* PTX names its own version and the GPU that it was written for; the driver compiles what it knows. */
static int ptx_judged(const char *text, const struct profile *p, const struct gpu *g) {
  int major, minor, target;
  const char *version = strstr(text, ".version "), *sm = strstr(text, ".target sm_");
  if (!version || !sm || sscanf(version, ".version %d.%d", &major, &minor) != 2) return INVALID_IMAGE;
  if (sscanf(sm, ".target sm_%d", &target) != 1) return INVALID_IMAGE;
  if (p->ptx && major * 10 + minor > p->ptx) return UNSUPPORTED_PTX_VERSION;
  return target > g->major * 10 + g->minor ? NO_BINARY_FOR_GPU : OK;
}

/* A cubin is an ELF file with its GPU in the lowest byte of e_flags, or in the second one since ABI 8. */
static int cubin_judged(const unsigned char *elf, const struct gpu *g) {
  unsigned built = elf[8] >= 8 ? elf[49] : elf[48];
  return built / 10 == (unsigned)g->major && built % 10 <= (unsigned)g->minor ? OK : NO_BINARY_FOR_GPU;
}

static int judged(const void *image) {
  const struct profile *p = the_profile();
  if (!memcmp(image, "\177ELF", 4)) return cubin_judged(image, &p->gpu[current_device()]);
  const unsigned *words = image;
  if (*words == 0x466243b1 || *words == 0xba55ed50) return OK; /* a bundle of both; it is not looked into */
  return ptx_judged(image, p, &p->gpu[current_device()]);
}

API cuModuleLoadData(void **module, const void *image) {
  ENTER_CONTEXT();
  int refused = judged(image);
  return refused ? refused : held(module, "module");
}

API cuModuleLoadDataEx(void **module, const void *image, unsigned options, int *option, void **values) {
  (void)options, (void)option, (void)values;
  return cuModuleLoadData(module, image);
}

API cuModuleLoadFatBinary(void **module, const void *image) {
  return cuModuleLoadData(module, image);
}

API cuModuleUnload(void *module) {
  ENTER_CONTEXT();
  free(module);
  return OK;
}

API cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  ENTER_CONTEXT();
  return held(function, name);
}

API cuModuleGetLoadingMode(int *mode) {
  ENTER_CONTEXT();
  *mode = 2; /* lazy, the default on Linux since CUDA 12.2 */
  return OK;
}

API cuLibraryLoadData(void **library, const void *code, void *jit, void **jit_values, unsigned jits, void *options,
                      void **values, unsigned count) {
  (void)code, (void)jit, (void)jit_values, (void)jits, (void)options, (void)values, (void)count;
  ENTER_CONTEXT();
  return held(library, "library");
}

API cuLibraryUnload(void *library) {
  ENTER_CONTEXT();
  free(library);
  return OK;
}

API cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  (void)library;
  ENTER_CONTEXT();
  return held(kernel, name);
}

API cuLibraryGetModule(void **module, void *library) {
  ENTER_CONTEXT();
  *module = library;
  return OK;
}

API cuKernelGetFunction(void **function, void *kernel) {
  ENTER_CONTEXT();
  *function = kernel;
  return OK;
}

API cuKernelGetName(const char **name, struct code *kernel) {
  ENTER_CONTEXT();
  *name = kernel->name;
  return OK;
}

API cuFuncGetName(const char **name, struct code *function) {
  ENTER_CONTEXT();
  *name = function->name;
  return OK;
}

API cuFuncSetCacheConfig(void *function, int config) {
  (void)function, (void)config;
  ENTER_CONTEXT();
  return OK;
}

API cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  ENTER_CONTEXT();
  return OK;
}

/* The one honest answer: this driver has no GPU to compute on. */
API cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
  (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
  (void)shared, (void)stream, (void)parameters, (void)extra;
  ENTER_CONTEXT();
  return NOT_SUPPORTED;
}

API cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
  (void)config, (void)function, (void)parameters, (void)extra;
  ENTER_CONTEXT();
  return NOT_SUPPORTED;
}
