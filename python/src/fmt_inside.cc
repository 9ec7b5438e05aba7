// Holds fmt's functions for the wheel's tool, since the system's shared fmt asks for a newer system than
// the wheel may (cmake/old_glibc.cmake).
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format-inl.h>

// The templates that fmt's headers declare as instantiated elsewhere.
template char fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref);
template auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref)
    -> fmt::detail::thousands_sep_result<char>;
template void fmt::detail::buffer<char>::append<char>(const char*, const char*);
