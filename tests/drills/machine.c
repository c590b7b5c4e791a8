/* What a node of a drill is told of its machine: how late a sync returns, and what time it is.
 *
 *   cc -shared -fPIC -o machine.so machine.c -ldl
 *   LD_PRELOAD=machine.so DRILL_MACHINE=FILE kvorum start …
 *
 * FILE holds two numbers of 64 bits, which may be written while the node runs:
 *   [0] ms that every fsync and fdatasync takes longer
 *   [1] ms that the wall clock is ahead (behind, if negative)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t still[2];
static volatile int64_t *machine = still;
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_gettimeofday)(struct timeval *restrict, void *restrict);

static void found(void) {
  if (real_clock_gettime) return;
  real_fsync = dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  real_gettimeofday = dlsym(RTLD_NEXT, "gettimeofday");
  real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
}

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("DRILL_MACHINE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  found();
  if (file < 0) return;
  void *at = mmap(NULL, sizeof still, PROT_READ, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) machine = at;
  close(file);
}

static void late(void) {
  int64_t ms = machine[0];
  struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
  if (ms > 0) nanosleep(&wait, NULL);
}

int fsync(int file) { found(); late(); return real_fsync(file); }
int fdatasync(int file) { found(); late(); return real_fdatasync(file); }

int clock_gettime(clockid_t which, struct timespec *at) {
  found();
  int failed = real_clock_gettime(which, at);
  if (!failed && which == CLOCK_REALTIME) {
    int64_t ms = machine[1], ns = at->tv_nsec + ms % 1000 * 1000000;
    at->tv_sec += ms / 1000 + (ns >= 1000000000) - (ns < 0);
    at->tv_nsec = ns + (ns < 0 ? 1000000000 : ns >= 1000000000 ? -1000000000 : 0);
  }
  return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  found();
  int failed = real_gettimeofday(at, zone);
  if (!failed) {
    int64_t ms = machine[1], us = at->tv_usec + ms % 1000 * 1000;
    at->tv_sec += ms / 1000 + (us >= 1000000) - (us < 0);
    at->tv_usec = us + (us < 0 ? 1000000 : us >= 1000000 ? -1000000 : 0);
  }
  return failed;
}
