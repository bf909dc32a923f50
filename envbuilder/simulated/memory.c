/* Device memory: pages of the host, reserved when asked for and touched only when used, counted against the GPU. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct block {
  unsigned long long start;
  size_t size;
  int device;
  void *context;
  struct block *next;
};

static struct block *blocks;
static unsigned long long used[MOST_GPUS];
static int lock;

static void take(void) {
  while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {
  }
}

static void give(void) {
  __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

static struct block *block_of(unsigned long long pointer) {
  struct block *found = NULL;
  take();
  for (struct block *b = blocks; b && !found; b = b->next)
    if (pointer >= b->start && pointer < b->start + b->size) found = b;
  give();
  return found;
}

API cuMemGetInfo_v2(size_t *unused, size_t *total) {
  int device = current_device();
  ENTER_CONTEXT();
  *total = the_profile()->gpu[device].memory;
  *unused = *total - used[device] - *total / 64; /* a context keeps some for itself */
  return OK;
}

API cuMemAlloc_v2(unsigned long long *pointer, size_t size) {
  int device = current_device();
  ENTER_CONTEXT();
  if (!size) return INVALID_VALUE;
  if (used[device] + size > the_profile()->gpu[device].memory) return OUT_OF_MEMORY;
  void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return OUT_OF_MEMORY;
  struct block *b = malloc(sizeof *b);
  if (!b) return OUT_OF_MEMORY;
  *b = (struct block){(unsigned long long)pages, size, device, current_context(), NULL};
  take();
  b->next = blocks;
  blocks = b;
  used[device] += size;
  give();
  *pointer = b->start;
  return OK;
}

API cuMemFree_v2(unsigned long long pointer) {
  struct block *freed = NULL;
  ENTER_CONTEXT();
  take();
  for (struct block **b = &blocks; *b && !freed; b = freed ? b : &(*b)->next)
    if ((*b)->start == pointer) {
      freed = *b;
      *b = freed->next;
      used[freed->device] -= freed->size;
    }
  give();
  if (!freed) return pointer ? INVALID_VALUE : OK;
  munmap((void *)freed->start, freed->size);
  free(freed);
  return OK;
}

API cuMemAllocAsync(unsigned long long *pointer, size_t size, void *stream) {
  (void)stream;
  return cuMemAlloc_v2(pointer, size);
}

API cuMemFreeAsync(unsigned long long pointer, void *stream) {
  (void)stream;
  return cuMemFree_v2(pointer);
}

API cuMemAllocManaged(unsigned long long *pointer, size_t size, unsigned flags) {
  (void)flags;
  return cuMemAlloc_v2(pointer, size);
}

API cuMemGetAddressRange_v2(unsigned long long *start, size_t *size, unsigned long long pointer) {
  struct block *b = block_of(pointer);
  ENTER_CONTEXT();
  if (!b) return NOT_FOUND;
  if (start) *start = b->start;
  if (size) *size = b->size;
  return OK;
}

API cuPointerGetAttribute(void *value, int attribute, unsigned long long pointer) {
  struct block *b = block_of(pointer);
  ENTER_CONTEXT();
  if (!b) return INVALID_VALUE;
  switch (attribute) {
    case 1: *(void **)value = b->context; return OK;
    case 2: *(unsigned *)value = 2; return OK; /* device memory */
    case 3: case 4: *(unsigned long long *)value = pointer; return OK;
    case 8: *(int *)value = 0; return OK; /* not managed */
    case 9: *(int *)value = b->device; return OK;
    case 11: *(unsigned long long *)value = b->start; return OK;
    case 12: *(size_t *)value = b->size; return OK;
    default: return NOT_SUPPORTED;
  }
}

/* Memory of the host that the device could read. */
API cuMemHostAlloc(void **pointer, size_t size, unsigned flags) {
  (void)flags;
  ENTER_CONTEXT();
  return posix_memalign(pointer, 4096, size ? size : 1) ? OUT_OF_MEMORY : OK;
}

API cuMemAllocHost_v2(void **pointer, size_t size) {
  return cuMemHostAlloc(pointer, size, 0);
}

API cuMemFreeHost(void *pointer) {
  ENTER_CONTEXT();
  free(pointer);
  return OK;
}

API cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags) {
  (void)pointer, (void)size, (void)flags;
  ENTER_CONTEXT();
  return OK;
}

API cuMemHostUnregister(void *pointer) {
  (void)pointer;
  ENTER_CONTEXT();
  return OK;
}

API cuMemHostGetDevicePointer_v2(unsigned long long *device, void *pointer, unsigned flags) {
  (void)flags;
  ENTER_CONTEXT();
  *device = (unsigned long long)pointer;
  return OK;
}

/* Copies and fills: one address space, so every direction is the same, and the stream has nothing to wait for. */
#define COPY(name, to_type, from_type)                                       \
  API name(to_type to, from_type from, size_t size) {                        \
    ENTER_CONTEXT();                                                         \
    if (!to || !from) return INVALID_VALUE;                                  \
    memmove((void *)to, (const void *)from, size);                           \
    return OK;                                                               \
  }
#define COPY_ON_STREAM(name, to_type, from_type)                             \
  API name(to_type to, from_type from, size_t size, void *stream) {          \
    (void)stream;                                                            \
    ENTER_CONTEXT();                                                         \
    if (!to || !from) return INVALID_VALUE;                                  \
    memmove((void *)to, (const void *)from, size);                           \
    return OK;                                                               \
  }
COPY(cuMemcpy, unsigned long long, unsigned long long)
COPY(cuMemcpyHtoD_v2, unsigned long long, const void *)
COPY(cuMemcpyDtoH_v2, void *, unsigned long long)
COPY(cuMemcpyDtoD_v2, unsigned long long, unsigned long long)
COPY_ON_STREAM(cuMemcpyAsync, unsigned long long, unsigned long long)
COPY_ON_STREAM(cuMemcpyHtoDAsync_v2, unsigned long long, const void *)
COPY_ON_STREAM(cuMemcpyDtoHAsync_v2, void *, unsigned long long)
COPY_ON_STREAM(cuMemcpyDtoDAsync_v2, unsigned long long, unsigned long long)

#define FILL(name, on_stream, type)                                               \
  API name(unsigned long long to, type value, size_t count) {                     \
    ENTER_CONTEXT();                                                              \
    if (!to) return INVALID_VALUE;                                                \
    for (size_t i = 0; i < count; i++) ((type *)to)[i] = value;                   \
    return OK;                                                                    \
  }                                                                               \
  API on_stream(unsigned long long to, type value, size_t count, void *stream) {  \
    (void)stream;                                                                 \
    return name(to, value, count);                                                \
  }
FILL(cuMemsetD8_v2, cuMemsetD8Async, unsigned char)
FILL(cuMemsetD16_v2, cuMemsetD16Async, unsigned short)
FILL(cuMemsetD32_v2, cuMemsetD32Async, unsigned)
