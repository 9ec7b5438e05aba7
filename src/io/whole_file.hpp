// Replaces a file as a whole, or leaves it as it was.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_WHOLE_FILE_HPP_
#define SLUICE_IO_WHOLE_FILE_HPP_

#include <cstddef>
#include <span>
#include <string>

#include "sluice/status.hpp"

namespace sluice::io {

/// Writes `bytes` as the file `path`: to a new file with a name of its own in the same folder, which
/// takes the place of the old one, with its mode, when all of it is on the disk. Of several writers
/// at once the last one wins. Devices and pipes are written to, also through a link such as
/// /dev/stdout; links to anything else and folders are refused.
Status write_whole_file(const std::string& path, std::span<const std::byte> bytes) noexcept;

}  // namespace sluice::io

#endif  // SLUICE_IO_WHOLE_FILE_HPP_
