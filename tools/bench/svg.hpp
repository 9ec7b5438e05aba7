// Writes scalable vector graphics by hand: elements with classes, one style sheet for light and
// dark pages.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_SVG_HPP_
#define SLUICE_TOOLS_BENCH_SVG_HPP_

#include <string>

namespace sluice::tools {

/// Text with <, >, &, quotes as entities.
std::string escape_xml(const std::string& text);

class Svg {
 public:
  explicit Svg(double width) : width_(width) {}

  /// `tip` is shown when the pointer rests on the element; may be empty.
  void rectangle(double x, double y, double width, double height, const std::string& classes,
                 const std::string& tip = {});
  void circle(double x, double y, double radius, const std::string& classes,
              const std::string& tip = {});
  void line(double x1, double y1, double x2, double y2, const std::string& classes);
  /// anchor: start, middle or end. y is the middle of the letters.
  void text(double x, double y, const std::string& text, const std::string& classes,
            const char* anchor = "start");

  /// The document, `height` high; `title` is for readers that do not see it.
  std::string document(double height, const std::string& title) const;

 private:
  void add(const std::string& element, const std::string& name, const std::string& content);

  double width_;
  std::string body_;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_SVG_HPP_
