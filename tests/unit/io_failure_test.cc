// Measures what failing calls of the system do to the reading and writing of files: each of them
// fails once, in turn. A file is the old one or the new one, nothing is left beside it, and no
// descriptor stays open.
// SPDX-License-Identifier: Apache-2.0
//
// WHY not under sanitizers: they have wrappers of their own, which these would hide.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors_reader.hpp"
#include "io/safetensors_writer.hpp"
#include "io/whole_file.hpp"

namespace {

// Calls of this thread that succeed before one fails; negative: none fails.
thread_local long calls_left = -1;
// The call that failed.
thread_local const char* failed_call = nullptr;
// Calls of write() that a signal ends before they have written anything, and the most bytes that one
// of the others writes; 0: as many as it is given.
thread_local int interruptions = 0;
thread_local size_t most_at_once = 0;
// What was brought to the disk and named, in order, where a test asks.
thread_local std::string* steps = nullptr;

bool fails(const char* call) {
  if (calls_left < 0 || --calls_left >= 0) return false;
  failed_call = call;
  errno = EIO;
  return true;
}

/// The C library's own function.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  static auto* const real = next<int(const char*, int, ...)>("open");
  return fails("open") ? -1 : real(path, flags, mode);
}
int mkostemp(char* pattern, int flags) {
  static auto* const real = next<int(char*, int)>("mkostemp");
  return fails("mkostemp") ? -1 : real(pattern, flags);
}
ssize_t write(int file, const void* bytes, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  if (interruptions > 0) {
    --interruptions;
    errno = EINTR;
    return -1;
  }
  if (most_at_once > 0) size = std::min(size, most_at_once);
  return fails("write") ? -1 : real(file, bytes, size);
}
int fchmod(int file, mode_t mode) noexcept {
  static auto* const real = next<int(int, mode_t)>("fchmod");
  return fails("fchmod") ? -1 : real(file, mode);
}
int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  if (steps != nullptr) {
    static auto* const status = next<int(int, struct stat*)>("fstat");
    struct stat found{};
    *steps += status(file, &found) == 0 && S_ISDIR(found.st_mode) ? "folder " : "file ";
  }
  return fails("fsync") ? -1 : real(file);
}
int close(int file) {
  static auto* const real = next<int(int)>("close");
  const bool failed = fails("close");
  const int result = real(file);  // the descriptor is gone all the same
  if (failed) errno = EIO;
  return failed ? -1 : result;
}
int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  if (steps != nullptr) *steps += "name ";
  return fails("rename") ? -1 : real(from, to);
}
int lstat(const char* path, struct stat* out) noexcept {
  static auto* const real = next<int(const char*, struct stat*)>("lstat");
  return fails("lstat") ? -1 : real(path, out);
}
int fstat(int file, struct stat* out) noexcept {
  static auto* const real = next<int(int, struct stat*)>("fstat");
  return fails("fstat") ? -1 : real(file, out);
}
void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) noexcept {
  static auto* const real = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
  return fails("mmap") ? MAP_FAILED : real(at, size, protection, flags, file, offset);
}

}  // extern "C"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

class IoFailures : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sluice-io-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = (folder_ / "x").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string content(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static size_t count(const fs::path& folder) {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
  }
  static size_t descriptors() { return count("/proc/self/fd"); }

  /// Runs `call` while one call of the system after another fails, until none does; those whose
  /// failure refused it. `check` looks at what it left.
  template <class Call, class Check>
  std::set<std::string> refusals_of(Call call, Check check) {
    std::set<std::string> refusing;
    for (int allowed = 0; allowed < 100; ++allowed) {
      const size_t open_before = descriptors();
      failed_call = nullptr;
      calls_left = allowed;
      const Status status = call();
      calls_left = -1;
      EXPECT_EQ(descriptors(), open_before) << "a descriptor stayed open";
      EXPECT_TRUE(status.ok() || status.message[0] != '\0') << "refused without a word";
      check(status.ok());
      if (failed_call == nullptr) {
        EXPECT_TRUE(status.ok()) << status.message;
        return refusing;
      }
      if (!status.ok()) refusing.insert(failed_call);
    }
    ADD_FAILURE() << "never succeeded";
    return refusing;
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(IoFailures, OfWritingLeaveTheOldFile) {
  const std::string text = "the new content";
  std::ofstream(path_) << "old";
  const std::set<std::string> refusing =
      refusals_of([&] { return write_whole_file(path_, std::as_bytes(std::span(text))); },
                  [&](bool written) {
                    EXPECT_EQ(content(path_), written ? text : "old") << failed_call;
                    EXPECT_EQ(count(folder_), 1u) << "left behind where it failed: " << failed_call;
                    std::ofstream(path_) << "old";
                  });
  EXPECT_EQ(refusing, (std::set<std::string>{"lstat", "mkostemp", "write", "fchmod", "fsync",
                                             "close", "rename"}));
}

TEST_F(IoFailures, OfWritingANewFileLeaveNone) {
  const std::string text = "the new content";
  refusals_of([&] { return write_whole_file(path_, std::as_bytes(std::span(text))); },
              [&](bool written) {
                EXPECT_EQ(count(folder_), written ? 1u : 0u) << failed_call;
                fs::remove(path_);
              });
}

TEST_F(IoFailures, OfWritingToADeviceAreTold) {
  const std::string text = "the new content";
  const std::set<std::string> refusing =
      refusals_of([&] { return write_whole_file("/dev/null", std::as_bytes(std::span(text))); },
                  [](bool) { EXPECT_TRUE(fs::is_character_file("/dev/null")); });
  EXPECT_EQ(refusing, (std::set<std::string>{"lstat", "open", "fstat", "write", "close"}));
}

TEST_F(IoFailures, TheContentIsOnTheDiskBeforeTheName) {
  const std::string text = "the new content";
  std::string order;
  steps = &order;
  const Status status = write_whole_file(path_, std::as_bytes(std::span(text)));
  steps = nullptr;
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(order, "file name folder ");
}

TEST_F(IoFailures, SignalsAndShortWritesAreNone) {
  const std::string text = "the new content";
  interruptions = 3;
  most_at_once = 4;
  const Status status = write_whole_file(path_, std::as_bytes(std::span(text)));
  most_at_once = 0;
  EXPECT_EQ(std::exchange(interruptions, 0), 0) << "not all calls were made";
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(content(path_), text);
}

TEST_F(IoFailures, OfSafetensorsAreRefusalsOnBothSides) {
  SafetensorsWriter writer;
  writer.add_integers("numbers", {3}, std::vector<int64_t>{4, 5, 6});
  writer.set_metadata("kind", "a test");
  refusals_of([&] { return writer.write(path_); },
              [&](bool written) {
                EXPECT_EQ(count(folder_), written ? 1u : 0u) << failed_call;
                fs::remove(path_);
              });
  ASSERT_TRUE(writer.write(path_).ok());
  const std::set<std::string> refusing = refusals_of(
      [&] {
        SafetensorsFile file;
        const Status status = SafetensorsFile::open(path_, &file);
        const TensorEntry* const found = status.ok() ? file.find("numbers") : nullptr;
        EXPECT_EQ(found != nullptr, status.ok());
        if (found != nullptr) {
          EXPECT_EQ(read_integers(*found), (std::vector<int64_t>{4, 5, 6}));
        }
        return status;
      },
      [](bool) {});
  EXPECT_EQ(refusing, (std::set<std::string>{"open", "fstat", "mmap"}));
}

}  // namespace
}  // namespace sluice::io

#endif  // not sanitized
