/* The CUDA driver's library as a program meets it on another host: initialisation, version, errors and devices. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int initialised, repeated;

/* CUDA_VISIBLE_DEVICES: indices, or beginnings of UUIDs, in the order wanted. What is no GPU, or of another form than
   the first, ends the list; a GPU that is there twice makes the start fail.
*/
static int wanted(const struct profile *p, const char *word, int by_index) {
  char uuid[TEXT], *end;
  long index = strtol(word, &end, 10);
  size_t length = strcspn(word, ",");
  if (by_index) return end != word && index >= 0 && index < p->gpus ? (int)index : -1;
  for (int i = 0; length > 4 && i < p->gpus; i++) {
    snprintf(uuid, sizeof uuid, UUID_TEXT, (unsigned)i);
    if (!strncmp(uuid, word, length)) return i;
  }
  return -1;
}

void arranged(struct profile *p) {
  const char *word = getenv("CUDA_VISIBLE_DEVICES");
  struct profile all = *p;
  if (!word) return;
  int by_index = *word != 'G';
  for (p->gpus = 0; *word && p->gpus < MOST_GPUS; word += *word == ',') {
    int index = wanted(&all, word, by_index);
    if (index < 0) return;
    for (int i = 0; i < p->gpus; i++) repeated |= p->gpu[i].place == all.gpu[index].place;
    p->gpu[p->gpus++] = all.gpu[index];
    word += strcspn(word, ",");
  }
}

#define NEED_DEVICE(d) \
  if ((d) < 0 || (d) >= the_profile()->gpus) return INVALID_DEVICE

int is_initialised(void) {
  return initialised;
}

API cuInit(unsigned flags) {
  ENTER();
  if (flags) return INVALID_VALUE;
  if (!the_profile()->gpus) return NO_DEVICE;
  if (repeated) return INVALID_DEVICE;
  initialised = 1;
  return OK;
}

API cuDriverGetVersion(int *version) {
  ENTER();
  if (!version) return INVALID_VALUE;
  *version = the_profile()->cuda;
  return OK;
}

/* Names and sentences as the driver has them: cuda.h names the codes, its documentation the sentences. */
static const struct {
  int code;
  const char *name, *sentence;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int error_row(int code) {
  for (int i = 0; i < (int)(sizeof errors / sizeof *errors); i++)
    if (errors[i].code == code) return i;
  return -1;
}

API cuGetErrorName(int code, const char **name) {
  int row = error_row(code);
  *name = row < 0 ? NULL : errors[row].name;
  return row < 0 ? INVALID_VALUE : OK;
}

API cuGetErrorString(int code, const char **sentence) {
  int row = error_row(code);
  *sentence = row < 0 ? NULL : errors[row].sentence;
  return row < 0 ? INVALID_VALUE : OK;
}

API cuDeviceGetCount(int *count) {
  ENTER_INITIALISED();
  *count = the_profile()->gpus;
  return OK;
}

API cuDeviceGet(int *device, int ordinal) {
  ENTER_INITIALISED();
  NEED_DEVICE(ordinal);
  *device = ordinal;
  return OK;
}

API cuDeviceGetName(char *name, int length, int device) {
  ENTER_INITIALISED();
  NEED_DEVICE(device);
  snprintf(name, (size_t)length, "%s", the_profile()->gpu[device].name);
  return OK;
}

API cuDeviceTotalMem_v2(size_t *bytes, int device) {
  ENTER_INITIALISED();
  NEED_DEVICE(device);
  *bytes = the_profile()->gpu[device].memory;
  return OK;
}

API cuDeviceComputeCapability(int *major, int *minor, int device) {
  ENTER_INITIALISED();
  NEED_DEVICE(device);
  *major = the_profile()->gpu[device].major;
  *minor = the_profile()->gpu[device].minor;
  return OK;
}

API cuDeviceGetUuid(unsigned char *uuid, int device) {
  ENTER_INITIALISED();
  NEED_DEVICE(device);
  memcpy(uuid, "simulated GPU  ", 15);
  uuid[15] = (unsigned char)the_profile()->gpu[device].place;
  return OK;
}

API cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  return cuDeviceGetUuid(uuid, device);
}

API cuDeviceGetPCIBusId(char *text, int length, int device) {
  ENTER_INITIALISED();
  NEED_DEVICE(device);
  snprintf(text, (size_t)length, "0000:%02x:00.0", the_profile()->gpu[device].place + 1);
  return OK;
}

API cuDeviceGetByPCIBusId(int *device, const char *text) {
  unsigned domain, bus;
  ENTER_INITIALISED();
  if (sscanf(text, "%x:%x:", &domain, &bus) != 2) return INVALID_VALUE;
  for (int i = 0; i < the_profile()->gpus; i++)
    if (the_profile()->gpu[i].place == (int)bus - 1) {
      *device = i;
      return OK;
    }
  return INVALID_DEVICE;
}

API cuDeviceCanAccessPeer(int *can, int device, int peer) {
  ENTER_INITIALISED();
  NEED_DEVICE(device);
  NEED_DEVICE(peer);
  *can = 0;
  return OK;
}

/* Attributes by number (CUdevice_attribute). What differs between GPUs comes from the profile; the rest are the
 * limits that every GPU since Volta has (CUDA C++ Programming Guide, "Features and Technical Specifications"), and
 * clocks are one round figure. What is absent here is 0: "not supported". */
static int shared_memory(const struct gpu *g) {
  int kib = g->major == 7 ? (g->minor ? 64 : 96) : g->major == 8 ? (g->minor == 0 || g->minor == 7 ? 164 : 100) : 0;
  return 1024 * (kib ? kib : g->major < 7 ? 96 : g->major < 12 ? 228 : 100); /* per multiprocessor */
}

static int attribute(const struct gpu *g, int number) {
  switch (number) {
    case 1: case 2: case 5: return number == 5 ? 2147483647 : 1024; /* block and grid extents */
    case 3: return 1024;
    case 4: return 64;
    case 6: case 7: return 65535;
    case 8: return 49152;
    case 9: return 65536;
    case 10: return 32;
    case 11: return 2147483647; /* pitch */
    case 12: case 82: return 65536; /* registers */
    case 13: return 1410000; /* kHz */
    case 14: return 512;
    case 15: case 18: return number == 15;
    case 16: return g->multiprocessors;
    case 19: case 31: case 41: case 78: case 79: case 80: case 83: case 90: case 95: return 1;
    case 32: return g->ecc_errors >= 0;
    case 33: return g->place + 1; /* PCI bus */
    case 36: return 1215000;
    case 37: return 5120;
    case 38: return 41943040;
    case 39: return 2048;
    case 40: return 3;
    case 51: return 32;
    case 75: return g->major;
    case 76: return g->minor;
    case 81: return shared_memory(g);
    case 87: return 2;
    case 97: return shared_memory(g) - (g->major >= 8 ? 1024 : 0);
    case 106: return 32;
    case 134: return -1; /* NUMA node unknown */
    default: return 0;
  }
}

API cuDeviceGetAttribute(int *value, int number, int device) {
  ENTER_INITIALISED();
  NEED_DEVICE(device);
  if (number < 1) return INVALID_VALUE;
  *value = attribute(&the_profile()->gpu[device], number);
  return OK;
}
