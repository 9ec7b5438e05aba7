// Parses JSON of untrusted origin within limits, and refuses duplicate keys.
// SPDX-License-Identifier: Apache-2.0
#include "io/strict_json.hpp"

#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace sluice::io {
namespace {

using nlohmann::json;

// Reads the text once without building anything; parse_strict_json() builds the document only from
// texts that pass.
class Guard final : public nlohmann::json_sax<json> {
 public:
  explicit Guard(const JsonLimits& limits) : limits_(limits) {}

  const std::string& reason() const { return reason_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return refuse("binary value"); }
  bool start_object(size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(true); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    std::set<std::string>& keys = open_.back().keys;
    if (!keys.insert(name).second) return refuse("key '" + printable(name) + "' is given twice");
    if (keys.size() <= limits_.keys) return true;
    return refuse("an object has more than " + std::to_string(limits_.keys) + " keys");
  }

  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    // The library's message ends in the reason; what precedes it is the error's number.
    const std::string text = error.what();
    const size_t colon = text.find(": ");
    return refuse("byte " + std::to_string(position) + ": " +
                  printable(colon == std::string::npos ? text : text.substr(colon + 2), 110));
  }

 private:
  struct Container {
    bool array;
    size_t length = 0;
    std::set<std::string> keys{};
  };

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool value() {
    if (open_.empty() || !open_.back().array) return true;
    if (++open_.back().length <= limits_.array_length) return true;
    return refuse("an array has more than " + std::to_string(limits_.array_length) + " elements");
  }

  bool open(bool array) {
    if (!value()) return false;
    if (open_.size() == limits_.depth) {
      return refuse("nested deeper than " + std::to_string(limits_.depth) + " levels");
    }
    open_.push_back({array});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  JsonLimits limits_;
  std::vector<Container> open_;
  std::string reason_;
};

}  // namespace

std::string parse_strict_json(std::string_view text, const JsonLimits& limits, json* out) {
  try {
    Guard guard(limits);
    if (!json::sax_parse(text.begin(), text.end(), &guard)) {
      return guard.reason().empty() ? "not JSON" : guard.reason();
    }
    *out = json::parse(text.begin(), text.end());
    return {};
  } catch (const std::exception& error) {
    return printable(error.what(), 120);
  }
}

std::string printable(std::string_view text, size_t size) {
  std::string result;
  for (const char c : text.substr(0, size)) result += (c >= ' ' && c <= '~') ? c : '?';
  if (text.size() > size) result += "..";
  return result;
}

}  // namespace sluice::io
