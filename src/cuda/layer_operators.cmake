# The convolution, the gated norm, and layers made of them: every GPU since Ampere, and PTX for those
# to come. One list entry a family where the generic kernel has one a model: these kernels wait for
# memory, so code for sm_80 serves sm_86 and sm_89 too.
add_library(sluice_cuda_plain OBJECT
  kernels/conv1d/inst/all.cu kernels/gated_norm/inst/all.cu)
set_target_properties(sluice_cuda_plain PROPERTIES CUDA_ARCHITECTURES "80-real;90-real;100-real;120")
target_compile_options(sluice_cuda_plain PRIVATE --compress-mode=size)
target_sources(sluice_cuda PRIVATE
  causal_conv1d/catalogue.cc causal_conv1d/lower.cc
  gated_rms_norm/catalogue.cc gated_rms_norm/lower.cc
  layer_prefill/catalogue.cc
  kernels/conv1d/launch.cc kernels/conv1d/plan.cc
  kernels/gated_norm/launch.cc kernels/gated_norm/plan.cc)
target_sources(sluice_cuda INTERFACE $<TARGET_OBJECTS:sluice_cuda_plain>)
