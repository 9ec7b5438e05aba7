# The decode kernel: the parity suites' own configurations of steps and layers, emulated.
sluice_add_emulated_backend(sluice_emulated_decode emulated_decode_backend.cc)
sluice_objects_of(suites sluice_parity_suites
  parity/decode_session_test parity/random_delta_test parity/recurrent_step_test
  parity/far_slots_step_test parity/replay_ring_test parity/ring_layer_test parity/delta_call
  parity/delta_judge)
sluice_add_emulated_tests(sluice_emulated_decode_tests
  decode_selection_test.cc emulated_decode_test.cc emulated_decode_states_test.cc
  emulated_layer_decode_test.cc
  ${suites} ${layer_suites}
  BACKENDS sluice_emulated_decode
  HOST environment decode/catalogue decode/rows_any decode/rows_replay decode/rows_single
    decode/lower decode/lower_single decode/lower_single_layer)
sluice_add_shards(emulated_decode 4 sluice_emulated_decode_tests cpu
  "*Decode*:*RecurrentStep*:*ReplayRing*:*FarSlotsLayer*decode_single:*FarSlotsLayer*decode_tokens:-*Composition*:*FarSlots*generic*")

# The generic kernel: what the parity suite asks of key-wise gates, in every form.
sluice_add_emulated_backend(sluice_emulated_generic emulated_generic_backend.cc)
sluice_objects_of(suites sluice_parity_suites parity/key_gates_test parity/delta_call parity/delta_judge
  parity/free_tensor parity/sequences)
sluice_add_emulated_tests(sluice_emulated_generic_tests ${suites}
  BACKENDS sluice_emulated_generic
  HOST environment chunk_forward/cut chunk_forward/cut_linear chunk_forward/generic chunk_forward/lower
    kernels/generic/launch)
sluice_add_shards(emulated_generic 2 sluice_emulated_generic_tests cpu "*")
