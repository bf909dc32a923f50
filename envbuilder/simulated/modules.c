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

struct asked {
  int version, target;
  char letter;
};

/* PTX names its own version and the GPU that it was written for. */
static int ptx_read(const char *text, struct asked *ptx) {
  int major, minor;
  const char *version = strstr(text, ".version "), *sm = strstr(text, ".target sm_");
  ptx->letter = 0;
  if (!version || sscanf(version, ".version %d.%d", &major, &minor) != 2) return INVALID_IMAGE;
  ptx->version = major * 10 + minor;
  return sm && sscanf(sm, ".target sm_%d%c", &ptx->target, &ptx->letter) >= 1 ? OK : INVALID_PTX;
}

/* sm_90a is compiled for 9.0 alone, sm_100f for its own family, sm_90 for 9.0 and whatever is newer. */
static int ptx_fits(const struct asked *ptx, const struct gpu *g) {
  int device = g->major * 10 + g->minor;
  if (ptx->letter == 'a') return ptx->target == device;
  return ptx->target <= device && (ptx->letter != 'f' || ptx->target / 10 == g->major);
}

static int ptx_is_newer(const struct asked *ptx, const struct profile *p) {
  return p->ptx && ptx->version > p->ptx;
}

/* PTX on its own: a version that the driver does not know is refused first. */
static int ptx_judged(const char *text, const struct profile *p, const struct gpu *g) {
  struct asked ptx;
  int result = ptx_read(text, &ptx);
  if (result == INVALID_IMAGE) return result;
  if (ptx_is_newer(&ptx, p)) return UNSUPPORTED_PTX_VERSION;
  return result || !ptx_fits(&ptx, g) ? INVALID_PTX : OK;
}

/* A cubin is an ELF file with its GPU in the lowest byte of e_flags, or in the second one since ABI 8. */
static int cubin_judged(const unsigned char *elf, const struct gpu *g) {
  if (elf[18] != 190) return INVALID_IMAGE; /* EM_CUDA */
  unsigned built = elf[8] >= 8 ? elf[49] : elf[48];
  return built / 10 == (unsigned)g->major && built % 10 <= (unsigned)g->minor ? OK : NO_BINARY_FOR_GPU;
}

/* The first bytes of an LZ4 block: what a fat binary's PTX is packed as. Ends with a zero, whatever the block holds. */
static void unpacked(const unsigned char *from, size_t size, char *to, size_t room) {
  const unsigned char *end = from + size;
  size_t done = 0;
  while (from < end && done + 1 < room) {
    unsigned token = *from++;
    size_t literals = token >> 4, matched = (token & 15) + 4;
    if (literals == 15)
      do literals += from < end ? *from : 0; while (from < end && *from++ == 255);
    while (literals-- && from < end && done + 1 < room) to[done++] = (char)*from++;
    if (end - from < 2) break;
    size_t back = from[0] | (size_t)from[1] << 8;
    from += 2;
    if (matched == 19)
      do matched += from < end ? *from : 0; while (from < end && *from++ == 255);
    if (!back || back > done) break;
    for (; matched && done + 1 < room; matched--, done++) to[done] = to[done - back];
  }
  to[done] = 0;
}

struct entry {
  unsigned short kind, unused;
  unsigned header;
  unsigned long long stored;
  unsigned packed, unused2;
  unsigned short minor, major;
  unsigned target, unused3[2];
  unsigned long long flags;
};

enum { PTX = 1, CUBIN = 2, LZ4 = 0x2000, ZSTD = 0x8000, HEAD = 2048 };

static int text_judged(const struct entry *e, const struct profile *p, const struct gpu *g) {
  char head[HEAD];
  const char *payload = (const char *)e + e->header;
  if (e->flags & ZSTD) snprintf(head, sizeof head, ".version %d.%d\n.target sm_%u\n", e->major, e->minor, e->target);
  else if (e->flags & LZ4) unpacked((const unsigned char *)payload, e->packed, head, sizeof head);
  else snprintf(head, sizeof head, "%.*s", (int)(e->stored < HEAD ? e->stored : HEAD - 1), payload);
  struct asked ptx;
  if (ptx_read(head, &ptx)) return INVALID_IMAGE;
  if (!ptx_fits(&ptx, g)) return NO_BINARY_FOR_GPU;
  return ptx_is_newer(&ptx, p) ? UNSUPPORTED_PTX_VERSION : OK;
}

/* A bundle: machine code that fits is taken; else PTX that fits is compiled, where the driver knows its version. */
static int bundle_judged(const unsigned char *bundle, const struct profile *p, const struct gpu *g) {
  unsigned long long left = *(const unsigned long long *)(bundle + 8);
  const unsigned char *at = bundle + 16;
  int refused = NO_BINARY_FOR_GPU;
  while (left >= sizeof(struct entry)) {
    const struct entry *e = (const struct entry *)at;
    unsigned long long size = e->header + e->stored;
    if (size < sizeof *e || size > left) return INVALID_IMAGE;
    if (e->kind == CUBIN && e->target / 10 == (unsigned)g->major && e->target % 10 <= (unsigned)g->minor) return OK;
    int result = e->kind == PTX ? text_judged(e, p, g) : NO_BINARY_FOR_GPU;
    if (result == OK || (result == UNSUPPORTED_PTX_VERSION && refused == NO_BINARY_FOR_GPU)) refused = result;
    at += size, left -= size;
  }
  return refused;
}

static int judged(const void *image) {
  const struct profile *p = the_profile();
  const struct gpu *g = &p->gpu[current_device()];
  if (!memcmp(image, "\177ELF", 4)) return cubin_judged(image, g);
  const unsigned *words = image;
  if (*words == 0xba55ed50) return bundle_judged(image, p, g);
  if (*words == 0x466243b1) return OK; /* the run time's wrapper: it loads lazily, and nothing is computed */
  return ptx_judged(image, p, g);
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
