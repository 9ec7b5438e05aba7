# A shared library that runs on systems older than the one that it is built on: linked with stand-ins of
# an older glibc (scripts/glibc_stubs.py), with libstdc++ inside, and with what that asks for and the
# older glibc lacks.

# sluice_link_for_glibc(TARGET RELEASE SOURCE...)
function(sluice_link_for_glibc target release)
  set(stubs ${CMAKE_CURRENT_BINARY_DIR}/glibc-${release})
  execute_process(COMMAND ${Python_EXECUTABLE} ${source}/scripts/glibc_stubs.py ${stubs} ${release}
    COMMAND_ERROR_IS_FATAL ANY)
  target_sources(${target} PRIVATE ${ARGN})
  # WHY by name: until 2.34 threads, dlopen and shared memory were in libraries of their own.
  target_link_options(${target} PRIVATE -static-libstdc++ -L${stubs}
    -Wl,--no-as-needed -lpthread -ldl -lrt -Wl,--as-needed)
endfunction()
