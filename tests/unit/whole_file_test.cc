// Measures what writing a file leaves behind: the new file or the old one, never a part, and nothing
// of devices, links and modes changed.
// SPDX-License-Identifier: Apache-2.0
#include "io/whole_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

class WholeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sluice-whole-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string at(const char* name) const { return (folder_ / name).string(); }
  static Status write(const std::string& path, const std::string& text) {
    return write_whole_file(path, std::as_bytes(std::span(text)));
  }
  static void old_file(const std::string& path, const std::string& text, unsigned mode) {
    std::ofstream(path) << text;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  static std::string content(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  [[nodiscard]] size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
};

unsigned mode_of(const std::string& path) {
  struct stat found{};
  EXPECT_EQ(::lstat(path.c_str(), &found), 0);
  return found.st_mode & 07777;
}

TEST_F(WholeFile, ReplacesTheContentAndKeepsTheMode) {
  old_file(at("x"), "old and longer", 0600);
  ASSERT_TRUE(write(at("x"), "new").ok());
  EXPECT_EQ(content(at("x")), "new");
  EXPECT_EQ(mode_of(at("x")), 0600u);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WholeFile, WhatCannotBeOpenedIsNamed) {
  old_file(at("x"), "old", 0600);
  EXPECT_EQ(std::string(write(at("x/y"), "new").message),
            at("x/y") + ": cannot be created: Not a directory");
  // A socket is no file, and has no reader that way.
  const int number = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  at("s").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(number, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(std::string(write(at("s"), "new").message),
            at("s") + ": cannot be opened: No such device or address");
  ::close(number);
  EXPECT_EQ(entries(), 2u);
}

TEST_F(WholeFile, ANewFileHasTheModeOfTheProcess) {
  const mode_t mask = ::umask(027);
  const Status status = write(at("x"), "new");
  ::umask(mask);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(mode_of(at("x")), 0640u);
}

TEST_F(WholeFile, ARelativePathIsOneOfThisFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const Status status = write("x", "new");
  fs::current_path(before);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(content(at("x")), "new");
}

TEST_F(WholeFile, LinksAreNotFollowed) {
  old_file(at("target"), "old", 0644);
  fs::create_symlink(at("target"), at("x"));
  EXPECT_EQ(std::string(write(at("x"), "new").message),
            at("x") +
                ": cannot be written: a symbolic link, expected a file (links are not "
                "followed)");
  EXPECT_EQ(content(at("target")), "old");
  EXPECT_TRUE(fs::is_symlink(at("x")));
  fs::create_symlink(at("nothing"), at("dangling"));
  EXPECT_FALSE(write(at("dangling"), "new").ok());
  EXPECT_FALSE(fs::exists(at("nothing")));
}

TEST_F(WholeFile, PlantedNamesOfPartsAreLeftAlone) {
  old_file(at("target"), "old", 0644);
  fs::create_symlink(at("target"), at("x.partial"));
  ASSERT_TRUE(write(at("x"), "new").ok());
  EXPECT_EQ(content(at("target")), "old");
  EXPECT_TRUE(fs::is_symlink(at("x.partial")));
}

TEST_F(WholeFile, DevicesStayDevices) {
  EXPECT_TRUE(write("/dev/null", "new").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/null", at("x"));
  EXPECT_TRUE(write(at("x"), "new").ok()) << "as through /dev/stdout";
  EXPECT_TRUE(fs::is_symlink(at("x")));
  if (!fs::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(std::string(write("/dev/full", "new").message),
            "/dev/full: cannot be written: No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(WholeFile, PipesAreWrittenTo) {
  ASSERT_EQ(::mkfifo(at("x").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = content(at("x")); });
  const Status status = write(at("x"), "through a pipe");
  reader.join();
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(read, "through a pipe");
}

TEST_F(WholeFile, FoldersAreRefused) {
  fs::create_directory(at("x"));
  EXPECT_EQ(std::string(write(at("x"), "new").message),
            at("x") + ": cannot be written: Is a directory");
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(std::string(write(at("no/x"), "new").message),
            at("no/x") + ": cannot be created: No such file or directory");
}

TEST_F(WholeFile, TheOldFileSurvivesAFullDisk) {
  old_file(at("x"), "old", 0644);
  // A limit on the size of files fails where a full disk does: in write().
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write(at("x"), std::string(5000, 'n'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::string(status.message), at("x") + ": cannot be written: File too large");
  EXPECT_EQ(content(at("x")), "old");
  EXPECT_EQ(entries(), 1u) << "a part was left behind";
}

TEST_F(WholeFile, WritersAtOnceAllSucceed) {
  constexpr int kWriters = 8, kRounds = 20;
  std::atomic<int> failures{0};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      const std::string text(10000, static_cast<char>('a' + writer));
      for (int round = 0; round < kRounds; ++round) failures += write(at("x"), text).ok() ? 0 : 1;
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  const std::string found = content(at("x"));
  EXPECT_EQ(found, std::string(10000, found.empty() ? '?' : found[0])) << "a mixture";
  EXPECT_EQ(entries(), 1u);
}

}  // namespace
}  // namespace sluice::io
