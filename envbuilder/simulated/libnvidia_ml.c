/* The management library (NVML) of the same simulated host: it reports what libcuda.c plays. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

enum {
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  UNSUPPORTED = 3,
  MISSING = 6,
  INSUFFICIENT_SIZE = 7
};

static int users;

/* NVML shows every GPU, whatever a program is allowed to use. */
void arranged(struct profile *p) {
  (void)p;
}

/* A device's handle is its index plus one, so that NULL is never one. */
static int index_of(const void *handle) {
  return (int)(size_t)handle - 1;
}

static const struct gpu *gpu_of(const void *handle) {
  int index = index_of(handle);
  return index >= 0 && index < the_profile()->gpus ? &the_profile()->gpu[index] : NULL;
}

static int copied(char *to, unsigned length, const char *text) {
  if (strlen(text) >= length) return INSUFFICIENT_SIZE;
  strcpy(to, text);
  return OK;
}

#define BEGIN()                     \
  ENTER();                          \
  if (!users) return UNINITIALIZED
#define BEGIN_FOR(handle)           \
  BEGIN();                          \
  const struct gpu *g = gpu_of(handle); \
  if (!g) return INVALID_ARGUMENT

API nvmlInit_v2(void) {
  ENTER();
  users++;
  return OK;
}

API nvmlInit(void) {
  return nvmlInit_v2();
}

API nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return nvmlInit_v2();
}

API nvmlShutdown(void) {
  BEGIN();
  users--;
  return OK;
}

/* The texts are those of driver 580, which nvidia-smi prints after "Failed to initialize NVML: ". */
__attribute__((visibility("default"))) const char *nvmlErrorString(int code) {
  switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 5: return "Already Initialized";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 8: return "Insufficient External Power";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 11: return "Interrupt Request Issue";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 14: return "Corrupted infoROM";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 17: return "GPU access blocked by the operating system";
    case 18: return "Driver/library version mismatch";
    case 19: return "In use by another client";
    case 20: return "Insufficient Memory";
    case 21: return "No data";
    case 22: return "vGPU ECC not supported";
    case 23: return "Insufficient Resources";
    case 24: return "Invalid Frequency";
    case 25: return "Argument version mismatch";
    case 26: return "Requested functionality has been deprecated";
    case 27: return "System is not in ready state";
    case 28: return "No supported GPUs were found";
    case 29: return "Resource not in correct state to perform requested operation";
    default: return "Unknown Error";
  }
}

API nvmlSystemGetDriverVersion(char *version, unsigned length) {
  BEGIN();
  return copied(version, length, the_profile()->driver);
}

API nvmlSystemGetNVMLVersion(char *version, unsigned length) {
  char text[TEXT + 16];
  ENTER();
  snprintf(text, sizeof text, "%d.%s", the_profile()->cuda / 1000, the_profile()->driver);
  return copied(version, length, text);
}

API nvmlSystemGetCudaDriverVersion_v2(int *version) {
  BEGIN();
  *version = the_profile()->cuda;
  return OK;
}

API nvmlSystemGetCudaDriverVersion(int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

API nvmlDeviceGetCount_v2(unsigned *count) {
  BEGIN();
  *count = (unsigned)the_profile()->gpus;
  return OK;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  BEGIN();
  if (index >= (unsigned)the_profile()->gpus) return INVALID_ARGUMENT;
  *handle = (void *)(size_t)(index + 1);
  return OK;
}

API nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **handle) {
  unsigned domain, bus;
  BEGIN();
  if (sscanf(text, "%x:%x:", &domain, &bus) != 2 || !bus || bus > (unsigned)the_profile()->gpus) return MISSING;
  *handle = (void *)(size_t)bus;
  return OK;
}

API nvmlDeviceGetIndex(void *handle, unsigned *index) {
  BEGIN_FOR(handle);
  (void)g;
  *index = (unsigned)index_of(handle);
  return OK;
}

API nvmlDeviceGetMinorNumber(void *handle, unsigned *number) {
  return nvmlDeviceGetIndex(handle, number);
}

API nvmlDeviceGetName(void *handle, char *name, unsigned length) {
  BEGIN_FOR(handle);
  return copied(name, length, g->name);
}

/* The bytes that cuDeviceGetUuid gives, as NVML writes them. */
API nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
  char uuid[TEXT];
  BEGIN_FOR(handle);
  (void)g;
  snprintf(uuid, sizeof uuid, UUID_TEXT, (unsigned)index_of(handle));
  return copied(text, length, uuid);
}

struct pci {
  char legacy[16];
  unsigned domain, bus, device, identity, subsystem;
  char text[32];
};

API nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
  BEGIN_FOR(handle);
  (void)g;
  memset(pci, 0, sizeof *pci);
  pci->bus = (unsigned)index_of(handle) + 1;
  snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
  snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", pci->bus);
  return OK;
}

API nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
  BEGIN_FOR(handle);
  *major = g->major;
  *minor = g->minor;
  return OK;
}

API nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
  BEGIN_FOR(handle);
  memory[0] = memory[1] = g->memory; /* total, free, used */
  memory[2] = 0;
  return OK;
}

struct memory {
  unsigned version;
  unsigned long long total, reserved, unused, used;
};

API nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory *memory) {
  BEGIN_FOR(handle);
  memory->total = memory->unused = g->memory;
  memory->reserved = memory->used = 0;
  return OK;
}

API nvmlDeviceGetPersistenceMode(void *handle, int *on) {
  BEGIN_FOR(handle);
  (void)g;
  *on = the_profile()->persistence;
  return OK;
}

API nvmlDeviceGetComputeMode(void *handle, int *mode) {
  BEGIN_FOR(handle);
  (void)g;
  *mode = 0;
  return OK;
}

API nvmlDeviceGetEccMode(void *handle, int *now, int *pending) {
  BEGIN_FOR(handle);
  if (g->ecc_errors < 0) return UNSUPPORTED;
  *now = *pending = 1;
  return OK;
}

/* kind 0 corrected, 1 uncorrected; a profile's errors are uncorrected, in both counters. */
API nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count) {
  (void)counter;
  BEGIN_FOR(handle);
  if (g->ecc_errors < 0) return UNSUPPORTED;
  *count = kind == 1 ? (unsigned long long)g->ecc_errors : 0;
  return OK;
}

API nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending) {
  BEGIN_FOR(handle);
  if (g->major < 8) return UNSUPPORTED;
  *now = *pending = 0;
  return OK;
}

API nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
  BEGIN_FOR(handle);
  (void)g;
  rates[0] = rates[1] = 0;
  return OK;
}

API nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, void *processes) {
  (void)processes;
  BEGIN_FOR(handle);
  (void)g;
  *count = 0;
  return OK;
}

API nvmlDeviceGetP2PStatus(void *handle, void *peer, int index, int *status) {
  (void)index;
  BEGIN_FOR(handle);
  if (!g || !gpu_of(peer)) return INVALID_ARGUMENT;
  *status = 1; /* the chipset does not support it */
  return OK;
}
