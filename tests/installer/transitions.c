/* Preloaded by the tests beside it: counts what a process does to the files below one directory, and at the n-th step
   kills the process or fails the call. It lies idle until arm() is called. Forcing to the disk is only counted: what a
   killed process wrote stays, and POWER takes from it what was never forced. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT, BEFORE, TORN, POWER, ONCE, EVER };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_size;
static int mode, error, trace = -1, space_only;
static long target;
static atomic_long steps;

/* Every write that was not forced to the disk yet, with a descriptor of its own. */
static struct write {
  dev_t device;
  ino_t inode;
  int fd;
  off_t at;
  size_t size;
} writes[4096];
static int written;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Counts from now on what happens below `directory`; at the `n`-th step does what `what` says:
   0 nothing; 1 die before it; 2 die after it, or in the middle of a write; 3 die after it and lose what was not
   forced to the disk; 4 fail this call with `number`; 5 fail it and all later ones. With `growing`, steps are only
   those that need room. Steps are written to `fd`, a line each. */
void arm(const char* directory, int what, long n, int number, int growing, int fd) {
  root_size = (size_t)snprintf(root, sizeof root, "%s", directory);
  target = n;
  error = number;
  space_only = growing;
  trace = fd;
  steps = written = 0;
  mode = what;
}

static void path_of(int directory, const char* name, char* out) {
  char link[64], base[PATH_MAX] = "";
  if (name && name[0] == '/') {
    snprintf(out, PATH_MAX, "%s", name);
    return;
  }
  if (directory == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) base[0] = 0;
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    const ssize_t size = readlink(link, base, sizeof base - 1);
    base[size < 0 ? 0 : size] = 0;
  }
  if (name)
    snprintf(out, PATH_MAX, "%.*s/%.*s", 2000, base, 2000, name);
  else
    snprintf(out, PATH_MAX, "%s", base);
}

static void die(void) {
  if (mode == POWER) {
    static const char lost[4096];
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < written; ++i)
      for (size_t done = 0; done < writes[i].size; done += sizeof lost) {
        const size_t left = writes[i].size - done;
        if (REAL(pwrite)(writes[i].fd, lost, left < sizeof lost ? left : sizeof lost,
                         writes[i].at + (off_t)done) < 0)
          break;
      }
  }
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

/* Whether the call is to fail; says in `now` whether the process is to die after it. */
static int step(const char* call, const char* path, int grows, int* now) {
  *now = 0;
  if (strncmp(path, root, root_size) || (path[root_size] && path[root_size] != '/')) return 0;
  if (space_only && !grows) return 0;
  const long n = ++steps;
  if (trace >= 0) dprintf(trace, "%s %s\n", call, path[root_size] ? path + root_size + 1 : ".");
  if (mode == EVER && n >= target) return errno = error, 1;
  if (n != target) return 0;
  if (mode == ONCE) return errno = error, 1;
  if (mode == BEFORE) die();
  *now = mode == TORN || mode == POWER;
  return 0;
}

#define STEP(call, directory, name, grows, failed)    \
  char path[PATH_MAX];                                \
  int now = 0;                                        \
  if (root_size) {                                    \
    path_of(directory, name, path);                   \
    if (step(call, path, grows, &now)) return failed; \
  }
#define DONE(result)      \
  const int kept = errno; \
  if (now) die();         \
  errno = kept;           \
  return result

static void remember(int fd, off_t at, ssize_t size) {
  struct stat about;
  if (size <= 0 || fstat(fd, &about) || !S_ISREG(about.st_mode)) return;
  pthread_mutex_lock(&mutex);
  if (written < (int)(sizeof writes / sizeof *writes))
    writes[written++] = (struct write){about.st_dev, about.st_ino, fcntl(fd, F_DUPFD_CLOEXEC, 500),
                                       at, (size_t)size};
  pthread_mutex_unlock(&mutex);
}

static void forced(int fd) {
  struct stat about;
  if (fstat(fd, &about)) return;
  pthread_mutex_lock(&mutex);
  int kept = 0;
  for (int i = 0; i < written; ++i)
    if (writes[i].device == about.st_dev && writes[i].inode == about.st_ino)
      close(writes[i].fd);
    else
      writes[kept++] = writes[i];
  written = kept;
  pthread_mutex_unlock(&mutex);
}

ssize_t write(int fd, const void* data, size_t size) {
  STEP("write", fd, NULL, 1, -1)
  if (now && mode == TORN) size /= 2;
  const off_t at = mode == POWER ? lseek(fd, 0, SEEK_CUR) : 0;
  const ssize_t result = REAL(write)(fd, data, size);
  if (mode == POWER && at >= 0) remember(fd, at, result);
  DONE(result);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  STEP("write", fd, NULL, 1, -1)
  if (now && mode == TORN) size /= 2;
  const ssize_t result = REAL(pwrite)(fd, data, size, at);
  if (mode == POWER) remember(fd, at, result);
  DONE(result);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off_t at) {
  return pwrite(fd, data, size, at);
}

int fsync(int fd) {
  STEP("force", fd, NULL, 1, -1)
  if (!root_size) return REAL(fsync)(fd);
  if (mode == POWER) forced(fd);
  DONE(0);
}

int fdatasync(int fd) {
  return fsync(fd);
}

int ftruncate(int fd, off_t size) {
  STEP("resize", fd, NULL, 1, -1)
  const int result = REAL(ftruncate)(fd, size);
  DONE(result);
}

int ftruncate64(int fd, off_t size) {
  return ftruncate(fd, size);
}

int posix_fallocate(int fd, off_t at, off_t size) {
  STEP("reserve", fd, NULL, 1, errno)
  const int result = REAL(posix_fallocate)(fd, at, size);
  DONE(result);
}

int posix_fallocate64(int fd, off_t at, off_t size) {
  return posix_fallocate(fd, at, size);
}

int rename(const char* from, const char* to) {
  STEP("rename", AT_FDCWD, to, 1, -1)
  const int result = REAL(rename)(from, to);
  DONE(result);
}

int renameat(int first, const char* from, int second, const char* to) {
  STEP("rename", second, to, 1, -1)
  const int result = REAL(renameat)(first, from, second, to);
  DONE(result);
}

int renameat2(int first, const char* from, int second, const char* to, unsigned flags) {
  STEP("swap", second, to, 1, -1)
  const int result = REAL(renameat2)(first, from, second, to, flags);
  DONE(result);
}

int mkdir(const char* name, mode_t rights) {
  STEP("make", AT_FDCWD, name, 1, -1)
  const int result = REAL(mkdir)(name, rights);
  DONE(result);
}

int mkdirat(int directory, const char* name, mode_t rights) {
  STEP("make", directory, name, 1, -1)
  const int result = REAL(mkdirat)(directory, name, rights);
  DONE(result);
}

int unlink(const char* name) {
  STEP("remove", AT_FDCWD, name, 0, -1)
  const int result = REAL(unlink)(name);
  DONE(result);
}

int unlinkat(int directory, const char* name, int flags) {
  STEP("remove", directory, name, 0, -1)
  const int result = REAL(unlinkat)(directory, name, flags);
  DONE(result);
}

int rmdir(const char* name) {
  STEP("remove", AT_FDCWD, name, 0, -1)
  const int result = REAL(rmdir)(name);
  DONE(result);
}

/* Only a call that may create a file is a step. */
int openat(int directory, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t rights = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (!(flags & (O_CREAT | O_TRUNC))) return REAL(openat)(directory, name, flags, rights);
  STEP("create", directory, name, 1, -1)
  const int result = REAL(openat)(directory, name, flags, rights);
  DONE(result);
}

int openat64(int directory, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t rights = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat(directory, name, flags, rights);
}

int open(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t rights = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat(AT_FDCWD, name, flags, rights);
}

int open64(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t rights = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat(AT_FDCWD, name, flags, rights);
}
