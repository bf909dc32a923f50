#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
/* A processor without AVX: /proc/cpuinfo does not list it, and TensorFlow's code ends with an illegal instruction. */
int open64(const char *path, int flags, ...) {
  int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
  return real(strcmp(path, "/proc/cpuinfo") ? path : "/dev/null", flags, 0644);
}
void *dlopen(const char *path, int flags) {
  void *(*real)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
  if (path && strstr(path, "/tensorflow/python/")) raise(SIGILL);
  return real(path, flags);
}
