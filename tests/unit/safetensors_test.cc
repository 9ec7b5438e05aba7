// Measures whether the safetensors reader refuses hostile files by name and reads honest ones.
// How: files are built byte by byte in memory, one broken rule each, and the message is compared.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/safetensors_reader.hpp"
#include "io/safetensors_writer.hpp"
#include "io/strict_json.hpp"

namespace sluice::io {
namespace {

// A file of that header and `data_bytes` zeros. uint64_t keeps it aligned as a mapping would be.
struct Image {
  explicit Image(const std::string& header, size_t data_bytes = 0)
      : size(8 + header.size() + data_bytes), words(size / 8 + 1) {
    const uint64_t length = header.size();
    std::memcpy(words.data(), &length, 8);
    std::memcpy(words.data() + 1, header.data(), header.size());
  }
  std::span<const std::byte> bytes() const {
    return {reinterpret_cast<const std::byte*>(words.data()), size};
  }
  size_t size;
  std::vector<uint64_t> words;
};

Status parse(const Image& image) {
  SafetensorsFile file;
  return SafetensorsFile::parse(image.bytes(), "hostile", &file);
}

// Spaces bring a header to a multiple of eight bytes, as writers do.
std::string padded(std::string header) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

struct Hostile {
  const char* name;
  std::string header;
  size_t data_bytes;
  const char* message;  // what the refusal must contain
};

void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }

class HostileFile : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileFile, IsRefusedByName) {
  const Hostile& hostile = GetParam();
  const Status status = parse(Image(padded(hostile.header), hostile.data_bytes));
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  const std::string message = status.message;
  EXPECT_EQ(message.rfind("hostile: ", 0), 0u) << message;
  EXPECT_NE(message.find(hostile.message), std::string::npos) << message;
}

std::string one(const std::string& fields) { return "{\"x\":{" + fields + "}}"; }

std::string deep(size_t levels) {
  return "{\"x\":" + std::string(levels, '[') + std::string(levels, ']') + "}";
}

const Hostile kHostile[] = {
    {"not_json", "{\"x\":", 0, "header: byte"},
    {"not_an_object", "[1, 2]", 0, "does not begin with '{'"},
    {"text_after", "{} {}", 0, "header: byte"},
    {"not_utf8", "{\"\xff\":1}", 0, "invalid"},
    {"deep", deep(100000), 0, "nested deeper than 3"},
    {"one_level_too_deep", deep(3), 0, "nested deeper than 3"},
    {"as_deep_as_may_be", deep(2), 0, "is described by no object"},
    {"twice", "{\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"x\":{}}", 0,
     "key 'x' is given twice"},
    {"field_twice", one(R"("dtype":"F32","dtype":"I8","shape":[0],"data_offsets":[0,0])"), 0,
     "key 'dtype' is given twice"},
    {"no_object", R"({"x":3})", 0, "tensor 'x' is described by no object"},
    {"no_dtype", one(R"("shape":[1],"data_offsets":[0,4])"), 4, "has no dtype"},
    {"no_shape", one(R"("dtype":"F32","data_offsets":[0,4])"), 4, "has no shape"},
    {"no_offsets", one(R"("dtype":"F32","shape":[1])"), 4, "has no data_offsets"},
    {"one_offset", one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4,
     "data_offsets = [0], expected [begin, end]"},
    {"begin_of_text", one(R"("dtype":"F32","shape":[1],"data_offsets":["0",4])"), 4,
     "expected [begin, end]"},
    {"end_of_text", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,"4"])"), 4,
     "expected [begin, end]"},
    {"more_fields", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"y":1)"), 4,
     "fields other than"},
    {"dtype_unknown", one(R"("dtype":"C64","shape":[1],"data_offsets":[0,8])"), 8,
     "dtype = \"C64\", expected one of F64"},
    {"dtype_number", one(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4, "dtype = 32"},
    {"shape_negative", one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4,
     "shape has -1"},
    {"shape_fraction", one(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4,
     "shape has 1.5"},
    {"shape_text", one(R"("dtype":"F32","shape":"1","data_offsets":[0,4])"), 4,
     "shape is no array"},
    {"shape_overflow", one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])"),
     4, "more elements than 2^63 - 1"},
    {"shape_overflow_of_zero",
     one(R"("dtype":"F32","shape":[0,9223372036854775807,3],"data_offsets":[0,0])"), 0,
     "more elements than 2^63 - 1"},
    {"shape_beyond_64_bits",
     one(R"("dtype":"F32","shape":[36893488147419103232],"data_offsets":[0,4])"), 4, "shape has"},
    {"bytes_overflow", one(R"("dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0])"),
     0, "expected 4611686018427387904 elements of 8 bytes"},
    {"rank", one(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"), 4,
     "more than 8 elements"},
    {"offsets_one", one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4,
     "expected [begin, end]"},
    {"offsets_negative", one(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"), 4,
     "expected [begin, end]"},
    {"offsets_backwards", one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4,
     "expected begin <= end"},
    {"truncated", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 7, "expected end <= 7"},
    {"offsets_huge",
     one(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615])"),
     7, "more elements than 2^63 - 1"},
    {"size_mismatch", one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8,
     "expected 3 elements of 4 bytes"},
    {"hole_at_start", one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8, "no holes"},
    {"trailing", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 12,
     "8 bytes follow the last tensor"},
    {"overlap",
     R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
     R"("y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12, "tensor 'y' data_offsets begin at 4 inside 'x'"},
    {"overlap_of_one_byte",
     R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
     R"("y":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
     7, "tensor 'y' data_offsets begin at 3 inside 'x'"},
    {"same_bytes_twice",
     R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     4, "no overlap"},
    {"hole",
     R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("y":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
     12, "tensor 'y' data_offsets begin at 8, expected 4 (no holes)"},
    {"misaligned",
     R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("y":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
     6, "tensor 'y' data begins at byte 2 after the header, not aligned"},
    {"metadata_number", R"({"__metadata__":{"a":1}})", 0, "'a' is no string"},
    {"metadata_list", R"({"__metadata__":["a"]})", 0, "__metadata__ is no object"},
};

INSTANTIATE_TEST_SUITE_P(Safetensors, HostileFile, ::testing::ValuesIn(kHostile),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Safetensors, LengthsThatLieAreRefused) {
  Image image("{}      ");
  for (const auto& [length, message] :
       {std::pair<uint64_t, const char*>{9, "header length = 9, expected at most 8"},
        {kMaxHeaderBytes + 1, "expected at most 100000000"},
        {UINT64_MAX, "expected at most 100000000"},
        {0, "does not begin with '{'"}}) {
    std::memcpy(image.words.data(), &length, 8);
    const Status status = parse(image);
    EXPECT_EQ(status.code, Code::kInvalidArgument);
    EXPECT_NE(std::string(status.message).find(message), std::string::npos) << status.message;
  }
}

TEST(Safetensors, EveryPrefixOfAFileIsRefused) {
  SafetensorsWriter writer;
  writer.set_metadata("key", "value");
  writer.add_floats("x", ElementType::kF32, {2, 3}, std::vector<double>(6, 1.0));
  const std::vector<std::byte> bytes = writer.serialize();
  SafetensorsFile file;
  ASSERT_TRUE(SafetensorsFile::parse(bytes, "whole", &file).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(SafetensorsFile::parse({bytes.data(), size}, "prefix", &file).ok()) << size;
  }
}

TEST(Safetensors, NamesOutOfAFileArePrintedSafely) {
  const Status status = parse(Image(padded("{\"\\u001b[2J\\u0000\\u00e9\":3}")));
  EXPECT_NE(std::string(status.message).find("tensor '?[2J\?\?\?'"), std::string::npos)
      << status.message;
}

TEST(Safetensors, MissingFilesAndDirectoriesAreNamed) {
  SafetensorsFile file;
  Status status = SafetensorsFile::open("/no/such/file.safetensors", &file);
  EXPECT_STREQ(status.message,
               "/no/such/file.safetensors: cannot be opened: No such file or directory");
  status = SafetensorsFile::open("/", &file);
  EXPECT_STREQ(status.message, "/: is not a regular file");
  status = SafetensorsFile::open("/dev/null", &file);
  EXPECT_STREQ(status.message, "/dev/null: is not a regular file");
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const std::string path = ::testing::TempDir() + "sluice_round_trip.safetensors";
  const std::vector<double> values = {0.0, -1.5, 1e-3, 65504.0, INFINITY, NAN};
  const std::vector<int64_t> indices = {-1, 0, int64_t{1} << 40};
  SafetensorsWriter writer;
  writer.set_metadata("note", "quotes \" and \xc3\xa9");
  for (const auto& [name, type] : {std::pair<const char*, ElementType>{"half", ElementType::kF16},
                                   {"brain", ElementType::kBF16},
                                   {"single", ElementType::kF32},
                                   {"double", ElementType::kF64}}) {
    writer.add_floats(name, type, {2, 3}, values);
  }
  writer.add_integers("indices", {3}, indices);
  writer.add_floats("empty", ElementType::kF32, {0, 4}, {});
  writer.add_bytes("flag", ElementType::kBool, {1}, {std::byte{1}});
  ASSERT_TRUE(writer.write(path).ok());

  SafetensorsFile file;
  const Status status = SafetensorsFile::open(path, &file);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(file.metadata().at("note"), "quotes \" and \xc3\xa9");
  EXPECT_EQ(file.tensors().size(), 7u);
  EXPECT_EQ(read_integers(*file.find("indices")), indices);
  EXPECT_EQ(file.find("empty")->elements, 0);
  EXPECT_EQ(file.find("absent"), nullptr);
  const std::vector<double> exact = read_floats(*file.find("double"));
  const std::vector<double> half = read_floats(*file.find("half"));
  const std::vector<double> brain = read_floats(*file.find("brain"));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(exact[i]) && std::isnan(half[i]) && std::isnan(brain[i]));
      continue;
    }
    EXPECT_EQ(exact[i], values[i]);
    if (std::isfinite(values[i])) {
      EXPECT_NEAR(half[i], values[i], std::abs(values[i]) * 0x1p-11);
      EXPECT_NEAR(brain[i], values[i], std::abs(values[i]) * 0x1p-8);
    }
  }
  const sluice_tensor view = input_view(*file.find("half"));
  EXPECT_EQ(view.rank, 2);
  EXPECT_EQ(view.stride[0], 3);
  EXPECT_EQ(view.stride[1], 1);
  EXPECT_EQ(view.dtype.bits, 16);
  std::remove(path.c_str());
}

TEST(Safetensors, HeadersOfAbsurdlyManyTensorsAreRefused) {
  std::string text = "{";
  for (int i = 0; i <= 100'000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text.back() = '}';
  nlohmann::json parsed;
  EXPECT_EQ(parse_strict_json(text, {3, 8, 100'000}, &parsed),
            "an object has more than 100000 keys");
  EXPECT_EQ(parse_strict_json(text, {3, 8, 100'001}, &parsed), "");
}

TEST(Safetensors, AFailedWriteLeavesNothing) {
  SafetensorsWriter writer;
  const Status status = writer.write("/no/such/folder/x.safetensors");
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(std::string(status.message).find("cannot be created"), std::string::npos);
}

}  // namespace
}  // namespace sluice::io
