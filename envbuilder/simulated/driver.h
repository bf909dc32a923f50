/* What the simulated driver's files share: the profile it plays, the trace, and how an entry point begins. */
#ifndef TF_ENVBUILDER_SIMULATED_DRIVER_H
#define TF_ENVBUILDER_SIMULATED_DRIVER_H

#include <stddef.h>

#define MOST_GPUS 32
#define MOST_FORCED 32
#define TEXT 96
#define UUID_TEXT "GPU-73696d75-6c61-7465-6420-4750552020%02x" /* "simulated GPU  " and the place, as NVML writes it */

/* The CUresult values that it answers by itself; a profile can force any other. */
enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_PTX = 218,
  UNSUPPORTED_PTX_VERSION = 222,
  NOT_FOUND = 500,
  CONTEXT_IS_DESTROYED = 709,
  NOT_SUPPORTED = 801
};

struct gpu {
  char name[TEXT];
  int major, minor;
  int multiprocessors;
  unsigned long long memory;
  int place;      /* its index on the host, which its PCI bus and UUID follow */
  int ecc_errors; /* uncorrected ones; -1 where the GPU has no ECC */
};

/* An entry point that has to answer `code`; written `force <name> <code>` in the profile. */
struct forced {
  char name[TEXT];
  int code;
};

struct profile {
  char driver[TEXT]; /* the kernel module's version, which NVML reports */
  int cuda;          /* what cuDriverGetVersion answers: 12020 for CUDA 12.2 */
  int ptx;           /* the newest PTX that it compiles: 82 for 8.2; 0 where unknown */
  int persistence;   /* persistence mode, 0 or 1 */
  int gpus, forcings;
  struct gpu gpu[MOST_GPUS];
  struct forced forced[MOST_FORCED];
};

const struct profile *the_profile(void);

/* What a library shows of the profile; each has its own, which is called once. */
void arranged(struct profile *p);

/* Note the call where a trace is wanted; answer the code that the profile forces on it, or 0. */
int entered(const char *name);

/* libcuda.c: whether cuInit has succeeded; contexts.c: the calling thread's context and its device, -1 for none. */
int is_initialised(void);
int current_device(void);
void *current_context(void);
/* OK, or why the calling thread has no context to work in. */
int context_state(void);

#define API __attribute__((visibility("default"))) int
#define ENTER()                       \
  do {                                \
    int forced_ = entered(__func__);  \
    if (forced_) return forced_;      \
  } while (0)
#define ENTER_INITIALISED() \
  ENTER();                  \
  if (!is_initialised()) return NOT_INITIALIZED
#define ENTER_CONTEXT()          \
  ENTER_INITIALISED();           \
  do {                           \
    int state_ = context_state(); \
    if (state_) return state_;   \
  } while (0)

#endif
