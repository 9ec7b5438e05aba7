# The operators around the delta rule: the parity suites' own configurations on the emulated kernels.
sluice_add_emulated_backend(sluice_emulated_layer emulated_layer_backend.cc)
sluice_add_emulated_backend(sluice_emulated_gradients emulated_gradients.cc)
sluice_add_emulated_tests(sluice_emulated_layer_tests
  conv_plan_test.cc emulated_conv_test.cc emulated_layer_test.cc ${layer_suites}
  BACKENDS sluice_emulated_layer sluice_emulated_gradients sluice_emulation
  HOST ${prefill_host} environment causal_conv1d/catalogue gated_rms_norm/catalogue
    layer_prefill/catalogue layer_backward/catalogue kernels/conv1d/plan kernels/gated_norm/plan)
# Not: where the reference in place of the delta rule rounds twice.
sluice_add_shards(emulated_layer 2 sluice_emulated_layer_tests cpu
  "-*InTurn/*_rounding1:*InTurn/*_rounding2:*FarSlotsLayer*decode*")
