// Hands the command line of the wheel's `sluice` to the tool that is linked into the extension.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include "call.hpp"
#include "python.hpp"
#include "tools/run_tool.hpp"

namespace sluice::python {

PyObject* tool(PyObject* /*module*/, PyObject* words) noexcept {
  std::vector<std::string> texts;
  const Py_ssize_t count = PySequence_Size(words);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref word(PySequence_GetItem(words, i));
    const Ref bytes(word ? PyUnicode_EncodeFSDefault(word.get()) : nullptr);
    if (!bytes) return nullptr;
    texts.emplace_back(PyBytes_AsString(bytes.get()));
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  int status = 0;
  Py_BEGIN_ALLOW_THREADS;
  status = tools::run_tool(static_cast<int>(texts.size()), argv.data());
  std::fflush(nullptr);
  Py_END_ALLOW_THREADS;
  return PyLong_FromLong(status);
}

}  // namespace sluice::python
