/* A link-time stub as CUDA toolkits bring one: every name of the driver's interface, and one answer to all of them. */
#define ANSWERS(name)                                               \
  __attribute__((visibility("default"))) int name(void) {           \
    return 34; /* CUDA_ERROR_STUB_LIBRARY */                        \
  }
#define HAS(name) ANSWERS(name)
#define LACKS(name) ANSWERS(name)
#include "has.inc"
#include "lacks.inc"
ANSWERS(cuGetProcAddress)
ANSWERS(cuGetProcAddress_v2)
ANSWERS(cuGetExportTable)
