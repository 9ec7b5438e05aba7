# Steps of the delta rule and of whole layers: host code, and kernels for Hopper.
set(decode kernels/decode)
target_sources(sluice_cuda PRIVATE
  decode/catalogue.cc decode/rows_any.cc decode/rows_replay.cc decode/rows_single.cc
  decode/lower.cc decode/lower_replay.cc decode/lower_single.cc decode/lower_single_layer.cc
  ${decode}/inst/replay_k64_kv.cu ${decode}/inst/replay_k64_vk.cu
  ${decode}/inst/replay_k128_kv.cu ${decode}/inst/replay_k128_vk.cu
  ${decode}/inst/replay_model_bf16.cu ${decode}/inst/replay_model_fp16.cu
  ${decode}/inst/single_bf16.cu ${decode}/inst/single_fp16.cu
  ${decode}/inst/single_keys_bf16.cu ${decode}/inst/single_keys_fp16.cu
  ${decode}/inst/k64_kv.cu ${decode}/inst/k64_vk.cu
  ${decode}/inst/k128_kv.cu ${decode}/inst/k128_vk.cu
  ${decode}/inst/k256_kv.cu ${decode}/inst/k256_vk.cu)
