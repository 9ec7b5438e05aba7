# Hardening of optimised builds, for the library, the tool and the Python extension: an error in our
# code ends the process where it happens, and tables of addresses cannot be overwritten.
# SECURITY.md says what it is for and costs; tests/abi/check_hardening.sh looks at the result.

# sluice_harden(TARGET PRIVATE|INTERFACE)
function(sluice_harden target scope)
  set(flags -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -D_GLIBCXX_ASSERTIONS -fstack-protector-strong)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND flags -fcf-protection=full)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
    list(APPEND flags -mbranch-protection=standard)
  endif()
  # Host code of CUDA kernels is nvcc's; fortified functions need an optimiser.
  target_compile_options(${target} ${scope}
    "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:${flags}>")
  target_link_options(${target} ${scope} -Wl,-z,relro,-z,now,-z,noexecstack)
endfunction()
