// Holds what g++ 12 and its libstdc++.a take from a newer glibc than a wheel may ask for
// (cmake/old_glibc.cmake), made of what older ones have.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // declares stat64
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>

#define HIDDEN __attribute__((visibility("hidden")))

// 2.32: whether reference counts may go without atomic operations. No says what is always right.
HIDDEN char __libc_single_threaded = 0;

// 2.33 made functions of these; headers of older ones called the others with a number of the layout.
#if defined(__x86_64__)
enum { kLayout = 1 };
#else
enum { kLayout = 0 };
#endif
int __xstat(int layout, const char* path, struct stat* out);
int __lxstat(int layout, const char* path, struct stat* out);
int __fxstat(int layout, int file, struct stat* out);

HIDDEN int stat(const char* path, struct stat* out) { return __xstat(kLayout, path, out); }
HIDDEN int lstat(const char* path, struct stat* out) { return __lxstat(kLayout, path, out); }
HIDDEN int fstat(int file, struct stat* out) { return __fxstat(kLayout, file, out); }
// On 64-bit systems both structs are one.
HIDDEN int fstat64(int file, struct stat64* out) {
  return __fxstat(kLayout, file, (struct stat*)out);
}

// 2.36, for std::random_device.
HIDDEN uint32_t arc4random(void) {
  uint32_t bits = 0;
  ssize_t had = 0;
  do {
    had = getrandom(&bits, sizeof bits, 0);
  } while (had < 0 && errno == EINTR);
  if (had != (ssize_t)sizeof bits) abort();
  return bits;
}
