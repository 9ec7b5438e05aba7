# Steps of the delta rule and of whole layers: host code, and kernels for Hopper.
sluice_instances(any_instances decode any k64_kv k64_vk k128_kv k128_vk k256_kv k256_vk)
sluice_instances(replay_instances decode replay
  replay_k64_kv replay_k64_vk replay_k128_kv replay_k128_vk)
sluice_instances(replay_model_instances decode replay_model replay_model_bf16 replay_model_fp16)
sluice_instances(single_instances decode single single_bf16 single_fp16 single_bf16_vk single_fp16_vk)
sluice_instances(single_keys_instances decode single_keys
  single_keys_bf16 single_keys_fp16 single_keys_bf16_vk single_keys_fp16_vk)
target_sources(sluice_cuda PRIVATE
  decode/catalogue.cc decode/rows_any.cc decode/rows_replay.cc decode/rows_single.cc
  decode/lower.cc decode/lower_single.cc decode/lower_single_layer.cc
  ${any_instances} ${replay_instances} ${replay_model_instances} ${single_instances}
  ${single_keys_instances})
