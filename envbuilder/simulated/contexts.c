/* Contexts, streams, events and modules: enough that a program gets as far as launching a kernel, and is told no. */
#include "driver.h"

#include <stdlib.h>
#include <time.h>

struct context {
  int device;
  unsigned long long id;
};
struct event {
  struct timespec when;
};

static struct context primary[MOST_GPUS];
static int retained[MOST_GPUS];
static unsigned long long ids = 1;

#define DEEPEST 64
static __thread struct context *stack[DEEPEST];
static __thread int depth;

static int known(int device) {
  return device >= 0 && device < the_profile()->gpus;
}

int current_device(void) {
  return depth && stack[depth - 1] ? stack[depth - 1]->device : -1;
}

void *current_context(void) {
  return depth ? stack[depth - 1] : NULL;
}

int context_state(void) {
  const struct context *now = current_context();
  if (!now) return INVALID_CONTEXT;
  return now == &primary[now->device] && !retained[now->device] ? CONTEXT_IS_DESTROYED : OK;
}

API cuDevicePrimaryCtxRetain(struct context **context, int device) {
  ENTER_INITIALISED();
  if (!known(device)) return INVALID_DEVICE;
  primary[device].device = device;
  primary[device].id = (unsigned long long)device + 1000;
  retained[device]++;
  *context = &primary[device];
  return OK;
}

API cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER_INITIALISED();
  if (!known(device)) return INVALID_DEVICE;
  if (!retained[device]) return INVALID_CONTEXT;
  retained[device]--;
  return OK;
}

API cuDevicePrimaryCtxReset_v2(int device) {
  ENTER_INITIALISED();
  if (!known(device)) return INVALID_DEVICE;
  retained[device] = 0;
  return OK;
}

API cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  (void)flags;
  ENTER_INITIALISED();
  return known(device) ? OK : INVALID_DEVICE;
}

API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  ENTER_INITIALISED();
  if (!known(device)) return INVALID_DEVICE;
  *flags = 0;
  *active = retained[device] > 0;
  return OK;
}

API cuCtxPushCurrent_v2(struct context *context) {
  ENTER_INITIALISED();
  if (depth == DEEPEST) return INVALID_CONTEXT;
  stack[depth++] = context;
  return OK;
}

API cuCtxPopCurrent_v2(struct context **context) {
  ENTER_INITIALISED();
  if (!depth) return INVALID_CONTEXT;
  depth--;
  if (context) *context = stack[depth];
  return OK;
}

API cuCtxSetCurrent(struct context *context) {
  ENTER_INITIALISED();
  if (!depth) depth = 1;
  stack[depth - 1] = context;
  return OK;
}

API cuCtxGetCurrent(struct context **context) {
  ENTER_INITIALISED();
  *context = current_context();
  return OK;
}

API cuCtxCreate_v2(struct context **context, unsigned flags, int device) {
  (void)flags;
  ENTER_INITIALISED();
  if (!known(device)) return INVALID_DEVICE;
  struct context *made = calloc(1, sizeof *made);
  if (!made) return OUT_OF_MEMORY;
  made->device = device;
  made->id = __atomic_fetch_add(&ids, 1, __ATOMIC_RELAXED);
  *context = made;
  return cuCtxPushCurrent_v2(made);
}

API cuCtxDestroy_v2(struct context *context) {
  ENTER_INITIALISED();
  if (depth && stack[depth - 1] == context) depth--;
  if (context && (context < primary || context >= primary + MOST_GPUS)) free(context);
  return OK;
}

API cuCtxGetDevice(int *device) {
  ENTER_CONTEXT();
  *device = current_device();
  return OK;
}

API cuCtxGetId(struct context *context, unsigned long long *id) {
  ENTER_INITIALISED();
  struct context *meant = context ? context : current_context();
  if (!meant) return INVALID_CONTEXT;
  *id = meant->id;
  return OK;
}

API cuCtxGetFlags(unsigned *flags) {
  ENTER_CONTEXT();
  *flags = 8; /* CU_CTX_MAP_HOST */
  return OK;
}

API cuCtxGetApiVersion(void *context, unsigned *version) {
  (void)context;
  ENTER_INITIALISED();
  *version = 3020;
  return OK;
}

API cuCtxSynchronize(void) {
  ENTER_CONTEXT();
  return OK;
}

API cuCtxGetLimit(size_t *value, int limit) {
  ENTER_INITIALISED();
  *value = limit == 0 ? 1024 : 8u << 20; /* bytes of stack; any heap or queue */
  return OK;
}

API cuCtxSetLimit(int limit, size_t value) {
  (void)limit, (void)value;
  ENTER_INITIALISED();
  return OK;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER_INITIALISED();
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return OK;
}

API cuCtxEnablePeerAccess(void *peer, unsigned flags) {
  (void)peer, (void)flags;
  ENTER_INITIALISED();
  return 217;
}

/* Streams: whatever is put on one is done at once. */
API cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  (void)flags, (void)priority;
  ENTER_CONTEXT();
  *stream = calloc(1, sizeof(int));
  return *stream ? OK : OUT_OF_MEMORY;
}

API cuStreamCreate(void **stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

API cuStreamDestroy_v2(void *stream) {
  ENTER_INITIALISED();
  free(stream);
  return OK;
}

API cuStreamGetCtx(void *stream, void **context) {
  (void)stream;
  ENTER_CONTEXT();
  *context = current_context();
  return OK;
}

API cuStreamGetPriority(void *stream, int *priority) {
  (void)stream;
  ENTER_INITIALISED();
  *priority = 0;
  return OK;
}

API cuStreamIsCapturing(void *stream, int *capturing) {
  (void)stream;
  ENTER_INITIALISED();
  *capturing = 0;
  return OK;
}

API cuStreamQuery(void *stream) {
  (void)stream;
  ENTER_INITIALISED();
  return OK;
}

API cuStreamSynchronize(void *stream) {
  (void)stream;
  ENTER_INITIALISED();
  return OK;
}

API cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  (void)stream, (void)event, (void)flags;
  ENTER_INITIALISED();
  return OK;
}

API cuLaunchHostFunc(void *stream, void (*call)(void *), void *argument) {
  (void)stream;
  ENTER_INITIALISED();
  call(argument);
  return OK;
}

API cuStreamAddCallback(void *stream, void (*call)(void *, int, void *), void *argument, unsigned flags) {
  (void)flags;
  ENTER_INITIALISED();
  call(stream, OK, argument);
  return OK;
}

API cuEventCreate(struct event **event, unsigned flags) {
  (void)flags;
  ENTER_CONTEXT();
  *event = calloc(1, sizeof **event);
  return *event ? OK : OUT_OF_MEMORY;
}

API cuEventDestroy_v2(struct event *event) {
  ENTER_INITIALISED();
  free(event);
  return OK;
}

API cuEventRecord(struct event *event, void *stream) {
  (void)stream;
  ENTER_INITIALISED();
  clock_gettime(CLOCK_MONOTONIC, &event->when);
  return OK;
}

API cuEventQuery(void *event) {
  (void)event;
  ENTER_INITIALISED();
  return OK;
}

API cuEventSynchronize(void *event) {
  (void)event;
  ENTER_INITIALISED();
  return OK;
}

API cuEventElapsedTime(float *milliseconds, const struct event *from, const struct event *to) {
  ENTER_INITIALISED();
  *milliseconds = (float)(to->when.tv_sec - from->when.tv_sec) * 1e3f +
                  (float)(to->when.tv_nsec - from->when.tv_nsec) / 1e6f;
  return OK;
}
