# Flags shared by all targets, as two interface targets: sluice_flags (ours) and nothing global.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)
if(SLUICE_COMPILE_SECONDS)
  set_property(GLOBAL PROPERTY
    RULE_LAUNCH_COMPILE "${PROJECT_SOURCE_DIR}/cmake/compile_seconds.sh <OBJECT>")
endif()

add_library(sluice_flags INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow)
if(SLUICE_WERROR)
  list(APPEND warnings -Werror)
endif()
target_compile_options(sluice_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:${warnings}>")
# Contraction would make results depend on what the compiler chose to fuse; kernels that want
# fused multiply-adds say so.
target_compile_options(sluice_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>")
# What is shipped has it; suites need not.
add_library(sluice_hardened INTERFACE)
if(NOT SLUICE_SANITIZE)  # whose checks are more, and are not made to go with these
  include(${PROJECT_SOURCE_DIR}/cmake/hardening.cmake)
  sluice_harden(sluice_hardened INTERFACE)
endif()
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE
    -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  # WHY: GCC 12 takes an empty std::optional for a read of its value once sanitized code stands around
  # it; the plain builds keep the warning, and it stays an error there.
  target_compile_options(sluice_flags INTERFACE "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()

# The CUDA half. nvcc 12.4 is the oldest that was tried; CUDACXX names another than the usual one.
set(SLUICE_WITH_CUDA OFF)
if(NOT SLUICE_CUDA STREQUAL "OFF" AND EXISTS ${PROJECT_SOURCE_DIR}/src/cuda/CMakeLists.txt)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND NOT SLUICE_SANITIZE)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
      message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.4; -DSLUICE_CUDA=OFF builds without it")
    endif()
    set(SLUICE_WITH_CUDA ON)
  elseif(SLUICE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SLUICE_CUDA=ON, but no usable nvcc was found (or sanitizers are on)")
  endif()
endif()
message(STATUS "Sluice ${PROJECT_VERSION}: CUDA half ${SLUICE_WITH_CUDA}, build ${CMAKE_BUILD_TYPE}")
