# The stages of a prefill: every GPU since Ampere, and PTX for those to come.
add_library(sluice_cuda_stages OBJECT
  kernels/stages/inst/compact.cu kernels/stages/inst/plain.cu kernels/stages/inst/solve.cu
  kernels/stages/inst/bf16.cu kernels/stages/inst/fp16.cu kernels/stages/inst/key_states.cu)
# chunk_backward runs these, and kernels of its own.
target_sources(sluice_cuda_stages PRIVATE kernels/backward/inst/all.cu
  kernels/backward/inst/bf16.cu kernels/backward/inst/fp16.cu)
set_target_properties(sluice_cuda_stages PROPERTIES CUDA_ARCHITECTURES "80-real;90")
target_compile_options(sluice_cuda_stages PRIVATE --compress-mode=size)
target_sources(sluice_cuda PRIVATE
  chunk_stage/accepts.cc chunk_stage/catalogue.cc chunk_stage/lower.cc
  chunk_backward/catalogue.cc chunk_backward/forward_pass.cc chunk_backward/lower.cc
  kernels/stages/launch.cc kernels/stages/compact_plan.cc kernels/stages/plan.cc
  kernels/backward/launch.cc kernels/backward/plan.cc)
target_sources(sluice_cuda INTERFACE $<TARGET_OBJECTS:sluice_cuda_stages>)
