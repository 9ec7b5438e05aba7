# The decode kernel: steps of the delta rule and of whole layers, on Hopper.
set(decode kernels/decode)
target_sources(sluice_cuda PRIVATE
  decode.cc lower_decode.cc select_decode.cc
  lower_ring.cc lower_single.cc lower_single_layer.cc
  ${decode}/launch.cc ${decode}/ring_launch.cc ${decode}/single_launch.cc
  ${decode}/inst/ring_k64_kv.cu ${decode}/inst/ring_k64_vk.cu
  ${decode}/inst/ring_k128_kv.cu ${decode}/inst/ring_k128_vk.cu
  ${decode}/inst/ring_model_bf16.cu ${decode}/inst/ring_model_fp16.cu
  ${decode}/inst/single_bf16.cu ${decode}/inst/single_fp16.cu
  ${decode}/inst/single_stream_bf16.cu ${decode}/inst/single_stream_fp16.cu
  ${decode}/inst/single_layer_bf16.cu ${decode}/inst/single_layer_fp16.cu
  ${decode}/inst/k64_kv.cu ${decode}/inst/k64_vk.cu
  ${decode}/inst/k128_kv.cu ${decode}/inst/k128_vk.cu
  ${decode}/inst/k256_kv.cu ${decode}/inst/k256_vk.cu)
