/* Preloaded by the tests beside it: a disk that gives little, is interrupted, or fails, a system that runs out of
   threads, and one that does not want advice. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_long reads, threads;

static long number(const char* name) {
  const char* text = getenv(name);
  return text ? atol(text) : 0;
}

/* FAULT_SHORT=n: at most n bytes a read. FAULT_EINTR=n: every n-th read is interrupted.
   FAULT_EIO=n: the n-th read fails. FAULT_DELAY=n: every read takes n microseconds longer.
   FAULT_STAGGER=n: every other read does, so that reads end in another order than they began. */
ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  static ssize_t (*real)(int, void*, size_t, off_t);
  if (!real) real = (ssize_t(*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  const long count = ++reads, most = number("FAULT_SHORT"), every = number("FAULT_EINTR");
  if (number("FAULT_DELAY")) usleep(number("FAULT_DELAY"));
  if (count % 2 && number("FAULT_STAGGER")) usleep(number("FAULT_STAGGER"));
  if (count == number("FAULT_EIO")) return errno = EIO, -1;
  if (every && count % every == 0) return errno = EINTR, -1;
  return real(fd, data, most && (size_t)most < size ? (size_t)most : size, offset);
}

ssize_t pread64(int fd, void* data, size_t size, off_t offset) {
  return pread(fd, data, size, offset);
}

/* FAULT_THREAD=n: the n-th thread and all after it are refused. */
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (!real)
    real = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(
        RTLD_NEXT, "pthread_create");
  const long first = number("FAULT_THREAD");
  if (first && ++threads >= first) return EAGAIN;
  return real(thread, attributes, body, argument);
}

/* FAULT_ADVICE=n: advice is refused, after n microseconds. */
int posix_fadvise(int fd, off_t offset, off_t size, int advice) {
  static int (*real)(int, off_t, off_t, int);
  if (!real) real = (int (*)(int, off_t, off_t, int))dlsym(RTLD_NEXT, "posix_fadvise");
  const long delay = number("FAULT_ADVICE");
  if (!delay) return real(fd, offset, size, advice);
  usleep(delay);
  return ESPIPE;
}

int posix_fadvise64(int fd, off_t offset, off_t size, int advice) {
  return posix_fadvise(fd, offset, size, advice);
}
