// Makes a layer's inputs from a seed, and takes them apart as its packings do.
// SPDX-License-Identifier: Apache-2.0
#include "parity/layer_arrays.hpp"

#include <algorithm>

namespace sluice::check {

Array interleave_qkvz(const LayerConfig& c, const LayerValues& values) {
  const int64_t r = c.HV / c.H, group = 2 * c.K + 2 * r * c.V;
  Array out({c.batch(), c.rows(), c.H * group});
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t t = 0; t < c.rows(); ++t) {
      for (int64_t h = 0; h < c.H; ++h) {
        for (int64_t i = 0; i < c.K; ++i) {
          out(b, t, h * group + i) = values.qkv(b, t, h * c.K + i);
          out(b, t, h * group + c.K + i) = values.qkv(b, t, (c.H + h) * c.K + i);
        }
        for (int64_t j = 0; j < r * c.V; ++j) {
          const int64_t column = h * r * c.V + j;
          out(b, t, h * group + 2 * c.K + j) = values.qkv(b, t, 2 * c.H * c.K + column);
          out(b, t, h * group + 2 * c.K + r * c.V + j) = values.z(b, t, column);
        }
      }
    }
  }
  return out;
}

Array interleave_ba(const LayerConfig& c, const LayerValues& values) {
  const int64_t r = c.HV / c.H;
  Array out({c.batch(), c.rows(), 2 * c.HV});
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t t = 0; t < c.rows(); ++t) {
      for (int64_t h = 0; h < c.HV; ++h) {
        out(b, t, h / r * 2 * r + h % r) = values.b(b, t, h);
        out(b, t, h / r * 2 * r + r + h % r) = values.a(b, t, h);
      }
    }
  }
  return out;
}

Array slice(const Array& from, int axis, int64_t first, int64_t count) {
  std::vector<int64_t> shape = from.shape;
  const auto place = static_cast<size_t>(axis);
  const int64_t whole = shape[place];
  int64_t inner = 1;
  for (size_t i = place + 1; i < shape.size(); ++i) inner *= shape[i];
  shape[place] = count;
  Array out(shape);
  const int64_t block = count * inner;
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t outer = i / block, rest = i % block;
    out.values[static_cast<size_t>(i)] =
        from.values[static_cast<size_t>((outer * whole + first) * inner + rest)];
  }
  return out;
}

Array join(const Array& q, const Array& k, const Array& v) {
  if (k.size() == 0) return q;
  std::vector<int64_t> shape = q.shape;
  shape[1] += k.shape[1] + v.shape[1];
  Array out;
  out.shape = shape;
  for (int64_t slot = 0; slot < shape[0]; ++slot) {
    for (const Array* part : {&q, &k, &v}) {
      const int64_t block = part->size() / shape[0];
      const auto first = part->values.begin() + slot * block;
      out.values.insert(out.values.end(), first, first + block);
    }
  }
  return out;
}

LayerValues make_layer_values(const LayerConfig& c) {
  const int64_t B = c.batch(), T = c.rows();
  LayerValues values;
  values.qkv = make_normal({B, T, c.channels()}, c.seed + 1);
  values.z = make_normal({B, T, c.HV * c.V}, c.seed + 2);
  values.b = make_normal({B, T, c.HV}, c.seed + 3);
  values.a = c.key_gates ? make_normal({B, T, c.HV, c.K}, c.seed + 4)
                         : make_normal({B, T, c.HV}, c.seed + 4);
  values.weight = make_normal({c.channels(), c.W}, c.seed + 5);
  values.bias = make_normal({c.channels()}, c.seed + 6);
  values.A_log = make_normal({c.HV}, c.seed + 7);
  values.dt_bias =
      c.key_gates ? make_normal({c.HV, c.K}, c.seed + 8) : make_normal({c.HV}, c.seed + 8);
  values.norm_weight = make_normal({c.V}, c.seed + 9);
  // Slow and fast heads side by side; weights near one.
  for (double& value : values.A_log.values) value = 2.0 * value - 3.0;
  for (double& value : values.norm_weight.values) value = 1.0 + 0.2 * value;
  for (double& value : values.weight.values) value *= 0.5;
  return values;
}

}  // namespace sluice::check
