// A C library, preloaded, that fails for files whose path contains LIE_ABOUT, as a dying or network disk does.
// LIE_READ, LIE_WRITE, LIE_SYNC: fail with errno LIE (EIO). LIE_SHORT: write a part. LIE_SLOW: wait so many ms.
// LIE_CLOCK: a file with the seconds by which the clock is ahead.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <string.h>
#include <unistd.h>
#include <stdio.h>
static int is_chosen(int fd) {
  char link[64], path[4096]; const char *part = getenv("LIE_ABOUT");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0 || !part) return 0;
  path[n] = 0;
  return strstr(path, part) != 0;
}
static void wait_a_little(int fd) {
  if (getenv("LIE_SLOW") && is_chosen(fd)) usleep(1000 * atoi(getenv("LIE_SLOW")));
}
static int number(void) { return atoi(getenv("LIE") ? getenv("LIE") : "5"); }
ssize_t read(int fd, void *to, size_t size) {
  ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
  wait_a_little(fd);
  if (getenv("LIE_READ") && is_chosen(fd)) { errno = number(); return -1; }
  return real(fd, to, size);
}
ssize_t write(int fd, const void *from, size_t size) {
  ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  wait_a_little(fd);
  if (getenv("LIE_WRITE") && is_chosen(fd)) { errno = number(); return -1; }
  if (getenv("LIE_SHORT") && is_chosen(fd) && size > 1) size = size / 2 + 1;
  return real(fd, from, size);
}
static long ahead(void) {
  char text[32] = {0}; const char *path = getenv("LIE_CLOCK");
  int fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) : -1;
  if (fd < 0) return 0;
  syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *to) {
  int wrong = syscall(SYS_clock_gettime, clock, to);
  if (!wrong && clock == CLOCK_REALTIME) to->tv_sec += ahead();
  return wrong;
}
time_t time(time_t *to) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *restrict to, void *restrict zone) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  to->tv_sec = now.tv_sec; to->tv_usec = now.tv_nsec / 1000;
  return 0;
}
int fsync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  wait_a_little(fd);
  if (getenv("LIE_SYNC") && is_chosen(fd)) { errno = number(); return -1; }
  return real(fd);
}
