// Writes elements of scalable vector graphics.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/svg.hpp"

#include <fmt/core.h>

namespace sluice::tools {
namespace {

// Classes: faint and strong text, bar and dot of cells ahead or behind, heat steps h0 (far behind)
// to h6 (far ahead). Heat cells carry their own text colour, so both page colours share them.
constexpr const char* kStyle = R"(
  text { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif;
         fill: #1f2328; }
  .title { font-size: 18px; font-weight: 600; }
  .faint { fill: #59636e; font-size: 12px; }
  .page { fill: #ffffff; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .one { stroke: #59636e; stroke-width: 1.5; }
  .goal { stroke: #1f2328; stroke-width: 2; }
  .ahead { fill: #2a78c2; }
  .behind { fill: #d1662b; }
  .unknown { fill: #afb8c1; }
  .dot { fill-opacity: 0.75; }
  .h0 { fill: #b5432a; } .h1 { fill: #e08a5f; } .h2 { fill: #dfe6ec; } .h3 { fill: #b9d7f0; }
  .h4 { fill: #7fb5e2; } .h5 { fill: #3f8bcb; } .h6 { fill: #1c5d99; }
  .on-light { fill: #1f2328; } .on-dark { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .faint { fill: #9198a1; } .page { fill: #0d1117; }
    .grid { stroke: #3d444d; } .one { stroke: #9198a1; } .goal { stroke: #f0f6fc; }
    .ahead { fill: #4a9be0; } .behind { fill: #e0814a; } .unknown { fill: #656c76; }
    .on-light { fill: #1f2328; } .on-dark { fill: #ffffff; }
  }
)";

}  // namespace

std::string escape_xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

void Svg::add(const std::string& element, const std::string& name, const std::string& content) {
  body_ += content.empty() ? fmt::format("  <{}/>\n", element)
                           : fmt::format("  <{}>{}</{}>\n", element, content, name);
}

void Svg::rectangle(double x, double y, double width, double height, const std::string& classes,
                    const std::string& tip) {
  add(fmt::format(R"(rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="{}")", x, y,
                  width, height, classes),
      "rect", tip.empty() ? "" : "<title>" + escape_xml(tip) + "</title>");
}

void Svg::circle(double x, double y, double radius, const std::string& classes,
                 const std::string& tip) {
  add(fmt::format(R"(circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" class="{}")", x, y, radius, classes),
      "circle", tip.empty() ? "" : "<title>" + escape_xml(tip) + "</title>");
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& classes) {
  add(fmt::format(R"(line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}")", x1, y1, x2,
                  y2, classes),
      "line", "");
}

void Svg::text(double x, double y, const std::string& text, const std::string& classes,
               const char* anchor) {
  // WHY not dominant-baseline: not every renderer knows it. A third of the letters' height.
  constexpr double kHalfLetter = 4.5;
  add(fmt::format(R"(text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}")", x, y + kHalfLetter,
                  classes, anchor),
      "text", text.empty() ? " " : escape_xml(text));
}

std::string Svg::document(double height, const std::string& title) const {
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
                     R"(viewBox="0 0 {0:.0f} {1:.0f}" role="img">
  <title>{2}</title>
  <style>{3}</style>
  <rect width="{0:.0f}" height="{1:.0f}" class="page"/>
{4}</svg>
)",
                     width_, height, escape_xml(title), kStyle, body_);
}

}  // namespace sluice::tools
