// Lists every view of a delta rule call, for those who move a call to another device.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_DELTA_TENSORS_HPP_
#define SLUICE_CHECK_DELTA_TENSORS_HPP_

#include <type_traits>
#include <vector>

#include "sluice/sluice.h"

namespace sluice::check {

/// The views of sluice_chunk_forward_args or sluice_recurrent_step_args, absent ones too.
template <class Args>
std::vector<sluice_tensor*> delta_tensors(Args* args) {
  sluice_state_io& s = args->state;
  std::vector<sluice_tensor*> list = {
      &args->q, &args->k,      &args->v,       &args->gate,         &args->beta,
      &args->o, &args->A_log,  &args->dt_bias, &args->cu_seqlens,   &s.initial,
      &s.final, &s.read_slots, &s.write_slots, &s.has_initial_state};
  if constexpr (std::is_same_v<Args, sluice_chunk_forward_args>) {
    list.insert(list.end(), {&args->checkpoints, &args->checkpoint_slots});
  } else {
    sluice_replay_ring& r = args->ring;
    list.insert(list.end(), {&args->num_accepted, &r.k, &r.delta, &r.decay, &r.position,
                             &r.checkpoint, &r.next_checkpoint});
  }
  return list;
}

}  // namespace sluice::check

#endif  // SLUICE_CHECK_DELTA_TENSORS_HPP_
