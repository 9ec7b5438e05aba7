// Writes a new file beside the old one and renames it.
// SPDX-License-Identifier: Apache-2.0
#include "io/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

namespace sluice::io {
namespace {

Status failure(const std::string& path, const char* what) {
  return Status::failure(Code::kInvalidArgument, "%s: cannot be %s: %s", path.c_str(), what,
                         std::strerror(errno));
}

Status link_refusal(const std::string& path) {
  return Status::failure(Code::kInvalidArgument,
                         "%s: cannot be written: a symbolic link, expected a file (links are not "
                         "followed)",
                         path.c_str());
}

/// A file descriptor, closed at the end of its scope at the latest.
class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  [[nodiscard]] bool open() const noexcept { return number_ >= 0; }
  [[nodiscard]] int number() const noexcept { return number_; }
  /// Whether nothing was wrong with it up to here; errno says what.
  bool close() noexcept {
    const int number = number_;
    number_ = -1;
    return number < 0 || ::close(number) == 0;
  }

 private:
  int number_;
};

/// All of it, or errno says why not.
bool write_all(int to, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(to, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

/// The mode of a new file: that of the old one, or what the process's mask leaves of 0666.
mode_t mode_of_new(const struct stat* old) noexcept {
  if (old != nullptr) return old->st_mode & 07777;
  // WHY from /proc where it can be: umask() itself changes the mask, for other threads too.
  unsigned mask = 022;
  if (std::FILE* const status = std::fopen("/proc/self/status", "re"); status != nullptr) {
    char line[256];
    while (std::fgets(line, sizeof line, status) != nullptr) {
      if (std::sscanf(line, "Umask: %o", &mask) == 1) break;
    }
    std::fclose(status);
  }
  return 0666 & ~mask;
}

/// A device, a pipe: there is nothing to replace. A file is none, whatever link led there.
Status write_in_place(const std::string& path, std::span<const std::byte> bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  struct stat found{};
  if (!file.open() || ::fstat(file.number(), &found) != 0) return failure(path, "opened");
  if (S_ISREG(found.st_mode)) return link_refusal(path);
  if (!write_all(file.number(), bytes) || !file.close()) return failure(path, "written");
  return ok_status();
}

/// After a rename: the folder's entry on the disk. Some file systems know no such thing.
void keep_entry(const std::string& folder) noexcept {
  const Descriptor entry(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (entry.open()) ::fsync(entry.number());
}

Status replace(const std::string& path, std::span<const std::byte> bytes, const struct stat* old) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  std::string partial = (slash == std::string::npos ? "" : folder) + ".sluice-XXXXXX";
  Descriptor file(::mkostemp(partial.data(), O_CLOEXEC));
  if (!file.open()) return failure(path, "created");
  const bool written = write_all(file.number(), bytes) &&
                       ::fchmod(file.number(), mode_of_new(old)) == 0 &&
                       ::fsync(file.number()) == 0;
  if (!written || !file.close() || std::rename(partial.c_str(), path.c_str()) != 0) {
    const Status status = failure(path, "written");
    ::unlink(partial.c_str());
    return status;
  }
  keep_entry(folder);
  return ok_status();
}

}  // namespace

Status write_whole_file(const std::string& path, std::span<const std::byte> bytes) noexcept {
  try {
    struct stat old{};
    if (::lstat(path.c_str(), &old) != 0) {
      return errno == ENOENT ? replace(path, bytes, nullptr) : failure(path, "created");
    }
    if (S_ISDIR(old.st_mode)) {
      errno = EISDIR;
      return failure(path, "written");
    }
    if (S_ISREG(old.st_mode)) return replace(path, bytes, &old);
    if (S_ISLNK(old.st_mode)) {
      struct stat target{};
      if (::stat(path.c_str(), &target) != 0 || S_ISREG(target.st_mode)) return link_refusal(path);
    }
    return write_in_place(path, bytes);
  } catch (const std::exception& error) {
    return Status::failure(Code::kInternal, "%s: %s", path.c_str(), error.what());
  }
}

}  // namespace sluice::io
